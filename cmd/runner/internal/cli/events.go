package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/jobrunner/runner/engine"
	"github.com/jobrunner/runner/engine/job"
	"github.com/jobrunner/runner/engine/store"
)

func newEvents(e *env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "events",
		Short: "Publish events that runs wait for, and list them",
		Long: `An event is a payload on a topic, with a key that says what it is about. A run that
waits for the topic (and for the key, if it names one) goes on in the commit that
publishes the event, which is its wait's answer. Events are kept, for a week unless
--keep says otherwise, for waits of a run that go on where an earlier one ended.

A run gets the events of its own tenant and those of none; a run of no tenant gets all.`,
		Example: `  runner events publish approval --key order-1042 --data '{"approved":true}'
  runner events ls --topic approval`,
		GroupID: groupOperate,
	}
	return e.group(cmd, newEventsPublish(e), newEventsLs(e))
}

// eventView is an event as JSON.
type eventView struct {
	Seq         int64           `json:"seq"`
	ID          string          `json:"id"`
	Topic       string          `json:"topic"`
	Key         string          `json:"key,omitempty"`
	Tenant      string          `json:"tenant,omitempty"`
	Data        json.RawMessage `json:"data,omitempty"`
	Run         string          `json:"run,omitempty"`
	By          string          `json:"by,omitempty"`
	PublishedAt time.Time       `json:"published_at,omitzero"`
	ExpiresAt   time.Time       `json:"expires_at,omitzero"`
}

// eventsPage is a page of events as JSON.
type eventsPage struct {
	Events []eventView `json:"events"`
	Next   int64       `json:"next,omitempty"` // what --before of the next page is
}

// publishedView is the answer to a publish.
type publishedView struct {
	ID      string `json:"id"`
	Seq     int64  `json:"seq"`
	Woken   int    `json:"woken"`
	Deduped bool   `json:"deduped,omitempty"`
}

func newEventsPublish(e *env) *cobra.Command {
	var ev engine.Event
	var data string
	cmd := &cobra.Command{
		Use:   "publish TOPIC",
		Short: "Publish an event",
		Long: `Publish an event, and print its id. No server is needed: a run that waits for it is made
ready in the same commit, and goes on when a worker takes it.

With --id, publishing again after an answer that was lost publishes nothing.`,
		Example: `  runner events publish approval --key order-1042 --data '{"approved":true}'
  runner events publish rates-changed --data @rates.json --keep 1h
  runner events publish paid --tenant acme --key inv-7
  echo '{"paid":true}' | runner events publish paid --key inv-7 --data -`,
		Args: cobra.ExactArgs(1),
	}
	t := e.targetFlags(cmd)
	e.jsonFlag(cmd)
	f := cmd.Flags()
	f.StringVar(&ev.Key, "key", "", "what the event is about; waits with another key do not get it")
	f.StringVar(&ev.Tenant, "tenant", "", "whose runs get it, besides those of no tenant (default everybody's)")
	f.StringVar(&data, "data", "", "the payload: JSON, @FILE, or - for stdin (default null)")
	f.StringVar(&ev.ID, "id", "", "the event's id, a UUID; one that was published before publishes nothing")
	durationVar(f, &ev.Keep, "keep", job.DefaultEventKeep, "how long it is kept, as in 1h or 30d")
	f.StringVar(&ev.By, "by", "cli", "who publishes, for the event's record")
	cmd.RunE = e.run(func(ctx context.Context, _ *cobra.Command, args []string) (err error) {
		ev.Topic = args[0]
		if ev.Payload, err = e.readPayload(data); err != nil {
			return err
		}
		return e.withStore(ctx, t, func(ctx context.Context, o opened) error {
			p, err := o.client.Publish(ctx, ev)
			if err != nil {
				return err
			}
			if e.json {
				return printJSON(e.Stdout, publishedView{ID: p.ID, Seq: p.Seq, Woken: p.Woken, Deduped: p.Deduped})
			}
			_, _ = fmt.Fprintln(e.Stdout, p.ID)
			if p.Deduped {
				e.note("it was published already")
			} else {
				e.note("%s waited for it", count(p.Woken, "run"))
			}
			return nil
		})
	})
	return cmd
}

func newEventsLs(e *env) *cobra.Command {
	var p store.ListEventsParams
	cmd := &cobra.Command{
		Use:     "ls",
		Aliases: []string{"list"},
		Short:   "List events, newest first",
		Long: `List the events that are kept, newest first. Payloads are redacted by the names of their
fields, as those of runs are. A page ends after --limit events; --before with the last
number of a page gives the next.`,
		Example: `  runner events ls
  runner events ls --topic approval --key order-1042 --json`,
		Args: cobra.NoArgs,
	}
	t := e.targetFlags(cmd)
	e.jsonFlag(cmd)
	f := cmd.Flags()
	f.StringVar(&p.Topic, "topic", "", "only events on this topic")
	f.StringVar(&p.Key, "key", "", "only events with this key")
	f.StringVar(&p.Tenant, "tenant", "", "only events of this tenant")
	f.Int64Var(&p.Before, "before", 0, "only events older than the one of this number")
	f.IntVar(&p.Limit, "limit", 100, "events to list, at most 1000")
	cmd.RunE = e.run(func(ctx context.Context, cmd *cobra.Command, _ []string) error {
		return e.withStore(ctx, t, func(ctx context.Context, o opened) error {
			events, err := o.client.Events(ctx, p)
			if err != nil {
				return err
			}
			var next int64
			if len(events) == p.Limit && len(events) > 0 {
				next = events[len(events)-1].Seq
			}
			if e.json {
				views := make([]eventView, 0, len(events))
				for _, ev := range events {
					views = append(views, eventView{
						Seq: ev.Seq, ID: ev.ID, Topic: ev.Topic, Key: ev.Key, Tenant: ev.Tenant, Data: redact(ev.Payload), Run: ev.Run, By: ev.By,
						PublishedAt: ev.PublishedAt, ExpiresAt: ev.ExpiresAt,
					})
				}
				return printJSON(e.Stdout, eventsPage{Events: views, Next: next})
			}
			now, err := o.store.Now(ctx)
			if err != nil {
				return err
			}
			t := table{head: []string{"NUMBER", "TOPIC", "KEY", "TENANT", "AGE", "EXPIRES", "BY", "DATA"}}
			for _, ev := range events {
				t.row(strconv.FormatInt(ev.Seq, 10), ev.Topic, ev.Key, ev.Tenant, ago(now, ev.PublishedAt), ago(now, ev.ExpiresAt), ev.By, cut(string(redact(ev.Payload))))
			}
			t.print(e.Stdout, e.out, func(_ int, text string) string { return text })
			if next > 0 {
				e.noteMore(cmd, strconv.FormatInt(next, 10))
			}
			return nil
		})
	})
	return cmd
}
