// Command approval is a handler module with two jobs: fulfil-order waits for a
// person's approval and then ships an order's parcels as children, ship-parcel
// ships one.
//
//	GOOS=wasip1 GOARCH=wasm go build -buildmode=c-shared -ldflags="-s -w" -o bin/approval.wasm ./examples/approval
package main

import (
	"errors"
	"time"

	"github.com/jobrunner/runner/abi/guest"
)

func init() {
	guest.Job("fulfil-order", fulfil)
	guest.Job("ship-parcel", ship)
	guest.Warm[Approval]()
	guest.Warm[Shipment]()
}

func main() {}

// patience is how long an order waits for its approval.
const patience = 72 * time.Hour

// atOnce is how many parcels of an order are under way at a time.
const atOnce = 10

// Order is what fulfil-order is enqueued with.
type Order struct {
	ID      string   `json:"id"`
	Parcels []string `json:"parcels"`
}

// Approval is the payload of the event that a person's answer becomes.
type Approval struct {
	Approved bool   `json:"approved"`
	By       string `json:"by"`
}

// Fulfilled is what fulfil-order leaves behind.
type Fulfilled struct {
	ApprovedBy string     `json:"approvedBy"`
	Shipments  []Shipment `json:"shipments"`
}

// fulfil asks, waits and ships. While it waits, for days or for its children, it
// is a row in the database and nothing else.
func fulfil(ctx *guest.Ctx, o Order) (Fulfilled, error) {
	order := guest.EventKey(o.ID)
	// From here on no answer is missed, however fast it comes.
	if err := guest.Subscribe(ctx, "approval", order); err != nil {
		return Fulfilled{}, err
	}
	if err := guest.Do(ctx, "ask", func() error {
		ctx.Log("body ask: please approve order " + o.ID)
		return nil
	}); err != nil {
		return Fulfilled{}, err
	}
	answer, err := guest.WaitEvent[Approval](ctx, "answer", "approval", patience, order)
	switch {
	case errors.Is(err, guest.ErrTimeout):
		return Fulfilled{}, guest.Terminal(guest.WithFix(guest.Coded("X_NOT_APPROVED", errors.New("nobody approved order "+o.ID+" in time")), "place it again"))
	case err != nil:
		return Fulfilled{}, err
	case !answer.Approved:
		return Fulfilled{}, guest.Terminal(guest.Coded("X_REJECTED", errors.New(answer.By+" rejected order "+o.ID)))
	}

	parcels := make([]Parcel, len(o.Parcels))
	for i, address := range o.Parcels {
		parcels[i] = Parcel{Order: o.ID, Address: address}
	}
	shipments, err := guest.Map[Shipment](ctx, "ship-parcel", atOnce, parcels)
	if err != nil {
		return Fulfilled{}, err
	}
	done := Fulfilled{ApprovedBy: answer.By, Shipments: shipments}
	return done, ctx.Publish("order-fulfilled", done, order)
}
