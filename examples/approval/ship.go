package main

import (
	"errors"

	"github.com/jobrunner/runner/abi/guest"
)

// Parcel is what ship-parcel is invoked with.
type Parcel struct {
	Order   string `json:"order"`
	Address string `json:"address"`
}

// Shipment is what it answers.
type Shipment struct {
	Address string `json:"address"`
	Label   string `json:"label"`
}

// ship has retries, steps and a timeout of its own, as any job has.
func ship(ctx *guest.Ctx, p Parcel) (Shipment, error) {
	if p.Address == "" {
		return Shipment{}, guest.Terminal(guest.WithFix(guest.Coded("X_NO_ADDRESS", errors.New("a parcel of order "+p.Order+" has no address")), "correct the order"))
	}
	return guest.Step(ctx, "label", func() (Shipment, error) {
		ctx.Log("body label: " + p.Address)
		return Shipment{Address: p.Address, Label: p.Order + "/" + p.Address}, nil
	})
}
