package main

import "github.com/jobrunner/runner/abi/guest"

// Digest is what send-digest is enqueued with.
type Digest struct {
	OrgID string `json:"orgId"`
	URL   string `json:"url"`
}

// Sent is what it leaves behind.
type Sent struct {
	Subject string `json:"subject"`
}

func sendDigest(ctx *guest.Ctx, d Digest) (Sent, error) {
	subject, err := guest.Step(ctx, "render", func() (string, error) {
		ctx.Log("body render")
		return "Your first days at " + d.URL, nil
	})
	if err != nil {
		return Sent{}, err
	}
	return guest.Step(ctx, "deliver", func() (Sent, error) {
		ctx.Log("body deliver")
		return Sent{Subject: subject}, nil
	})
}
