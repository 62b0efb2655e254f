package app

import (
	"context"
	"fmt"
	"log/slog"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	oteltrace "go.opentelemetry.io/otel/trace"

	"github.com/jobrunner/runner/abi"
	"github.com/jobrunner/runner/engine/job"
	"github.com/jobrunner/runner/engine/trace"
)

// tracing sends spans as the standard OTEL_* variables say, over OTLP in HTTP.
type tracing struct {
	provider *sdktrace.TracerProvider
	tracer   oteltrace.Tracer
}

// tracingWanted reports whether the environment asks for traces.
// Errors: X_INVALID for an exporter, a protocol or a sampler that this program has
// not, and for an endpoint or headers that are none. No value of these is repeated.
func tracingWanted(getenv func(string) string) (bool, error) {
	exporter := strings.ToLower(getenv("OTEL_TRACES_EXPORTER"))
	switch {
	case strings.EqualFold(getenv("OTEL_SDK_DISABLED"), "true"), exporter == "none":
		return false, nil
	case exporter == "" && getenv("OTEL_EXPORTER_OTLP_ENDPOINT") == "" && getenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT") == "":
		return false, nil
	case exporter != "" && exporter != "otlp":
		return false, &abi.Error{Code: job.CodeInvalid, Message: fmt.Sprintf("OTEL_TRACES_EXPORTER is %q", exporter), Fix: "set it to otlp or none"}
	}
	protocol := getenv("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL")
	if protocol == "" {
		protocol = getenv("OTEL_EXPORTER_OTLP_PROTOCOL")
	}
	if protocol != "" && protocol != "http/protobuf" {
		return false, &abi.Error{
			Code: job.CodeInvalid, Message: fmt.Sprintf("traces are sent as http/protobuf, and the environment asks for %q", protocol),
			Fix: "set OTEL_EXPORTER_OTLP_PROTOCOL=http/protobuf, with the collector's port for HTTP (4318)",
		}
	}
	for _, name := range []string{"OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"} {
		if v := getenv(name); v != "" && !isEndpoint(v) {
			return false, &abi.Error{Code: job.CodeInvalid, Message: name + " is no URL", Fix: "write it as http://collector:4318 or https://…"}
		}
	}
	for _, name := range []string{"OTEL_EXPORTER_OTLP_HEADERS", "OTEL_EXPORTER_OTLP_TRACES_HEADERS"} {
		if !areHeaders(getenv(name)) {
			return false, &abi.Error{Code: job.CodeInvalid, Message: name + " is no list of headers", Fix: "write it as key=value,key=value, with values escaped as in a URL"}
		}
	}
	if s := getenv("OTEL_TRACES_SAMPLER"); s != "" && !slices.Contains(samplers, s) {
		return false, &abi.Error{
			Code: job.CodeInvalid, Message: fmt.Sprintf("OTEL_TRACES_SAMPLER is %q", s), Fix: "set it to one of " + strings.Join(samplers, ", "),
		}
	}
	if s := getenv("OTEL_TRACES_SAMPLER_ARG"); s != "" && strings.HasSuffix(getenv("OTEL_TRACES_SAMPLER"), "traceidratio") {
		if f, err := strconv.ParseFloat(s, 64); err != nil || !(f >= 0 && f <= 1) {
			return false, &abi.Error{Code: job.CodeInvalid, Message: fmt.Sprintf("OTEL_TRACES_SAMPLER_ARG is %q", s), Fix: "set it to the share of traces to keep, from 0 to 1"}
		}
	}
	return true, nil
}

// samplers are those that the library knows. For another it would take its default,
// which keeps everything, and say so where nobody looks.
var samplers = []string{"always_on", "always_off", "traceidratio", "parentbased_always_on", "parentbased_always_off", "parentbased_traceidratio"}

// isEndpoint and areHeaders check what the library would only complain of, with
// the value, which may hold a password, and go on without.
func isEndpoint(s string) bool {
	u, err := url.Parse(s)
	return err == nil && (u.Scheme == "http" || u.Scheme == "https") && u.Hostname() != ""
}

func areHeaders(s string) bool {
	if s == "" {
		return true
	}
	for header := range strings.SplitSeq(s, ",") {
		name, value, ok := strings.Cut(header, "=")
		if _, err := url.PathUnescape(value); !ok || err != nil || strings.TrimSpace(name) == "" {
			return false
		}
	}
	return true
}

// newTracing is nil if the environment asks for no traces. It connects to nothing
// yet: a collector that is away loses spans, and holds nothing up. failed hears of it.
func newTracing(ctx context.Context, getenv func(string) string, failed otel.ErrorHandler, opts ...otlptracehttp.Option) (*tracing, error) {
	if wanted, err := tracingWanted(getenv); err != nil || !wanted {
		return nil, err
	}
	otel.SetLogger(logr.Discard()) // it would print variables as they are, and headers are secrets
	exporter, err := otlptracehttp.New(ctx, opts...)
	if err != nil {
		return nil, &abi.Error{Code: job.CodeInvalid, Message: "the OTEL_* variables make no exporter: " + err.Error(), Fix: "correct or unset them", Err: err}
	}
	res, err := resource.New(ctx, resource.WithAttributes(attribute.String("service.name", "runner")), resource.WithFromEnv(), resource.WithTelemetrySDK())
	if err != nil {
		return nil, &abi.Error{Code: job.CodeInvalid, Message: "OTEL_RESOURCE_ATTRIBUTES: " + err.Error(), Fix: "write it as key=value,key=value", Err: err}
	}
	otel.SetErrorHandler(failed)
	p := sdktrace.NewTracerProvider(sdktrace.WithBatcher(exporter), sdktrace.WithResource(res))
	return &tracing{provider: p, tracer: p.Tracer("github.com/jobrunner/runner")}, nil
}

// flushPatience is how long a stop waits for spans to be sent.
var flushPatience = 5 * time.Second

func (t *tracing) close(log *slog.Logger) {
	ctx, cancel := context.WithTimeout(context.Background(), flushPatience)
	defer cancel()
	if err := t.provider.Shutdown(ctx); err != nil {
		log.Warn("trace.flush-failed", slog.Any("error", err))
	}
}

// seldom logs failures to send, one a minute at most.
type seldom struct {
	log  *slog.Logger
	mu   sync.Mutex
	next time.Time
}

// Handle implements otel.ErrorHandler.
func (s *seldom) Handle(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if now := time.Now(); now.After(s.next) {
		s.next = now.Add(time.Minute)
		s.log.Warn("trace.export-failed", slog.Any("error", err))
	}
}

// Start implements trace.Tracer.
func (t *tracing) Start(p trace.Params) trace.Span {
	ctx := propagation.TraceContext{}.Extract(context.Background(), propagation.MapCarrier{"traceparent": p.Parent})
	kind := oteltrace.SpanKindInternal
	switch p.Kind {
	case trace.Consumer:
		kind = oteltrace.SpanKindConsumer
	case trace.Producer:
		kind = oteltrace.SpanKindProducer
	}
	opts := []oteltrace.SpanStartOption{oteltrace.WithSpanKind(kind), oteltrace.WithAttributes(attributes(p.Attrs)...)}
	if !p.At.IsZero() {
		opts = append(opts, oteltrace.WithTimestamp(p.At))
	}
	_, s := t.tracer.Start(ctx, p.Name, opts...)
	return span{s}
}

func attributes(attrs []trace.Attr) []attribute.KeyValue {
	out := make([]attribute.KeyValue, len(attrs))
	for i, a := range attrs {
		if a.Text != "" {
			out[i] = attribute.String(a.Key, a.Text)
		} else {
			out[i] = attribute.Int64(a.Key, a.Number)
		}
	}
	return out
}

type span struct{ s oteltrace.Span }

// Traceparent implements trace.Span.
func (s span) Traceparent() string {
	c := s.s.SpanContext()
	return fmt.Sprintf("00-%s-%s-%s", c.TraceID(), c.SpanID(), c.TraceFlags())
}

// End implements trace.Span.
func (s span) End(p trace.EndParams) {
	s.s.SetAttributes(attributes(p.Attrs)...)
	if p.Failed {
		s.s.SetStatus(codes.Error, p.Code)
		if p.Code != "" {
			s.s.SetAttributes(attribute.String("error.type", p.Code))
		}
	}
	if p.At.IsZero() {
		s.s.End()
		return
	}
	s.s.End(oteltrace.WithTimestamp(p.At))
}
