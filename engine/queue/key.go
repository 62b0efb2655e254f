package queue

import (
	"fmt"

	"github.com/jobrunner/runner/abi"
	"github.com/jobrunner/runner/engine/job"
	"github.com/jobrunner/runner/engine/limit"
	"github.com/jobrunner/runner/engine/manifest"
)

// tenantFor is the tenant of a run: what the caller says, what the job's
// template says, or both when they agree.
func tenantFor(j *manifest.Job, said string, input []byte, id string) (string, error) {
	if j.Tenant.None {
		return said, nil
	}
	rendered, err := j.Tenant.Render(input, id)
	if err != nil {
		return "", refused(j, err)
	}
	if said != "" && said != rendered {
		return "", mismatch(j, said, rendered)
	}
	return rendered, nil
}

// CheckTenant reports a claimed run whose row belongs to another tenant than
// its input. An untenanted row is a system's and passes; so does any row of a
// job that declares no tenant.
// Errors: X_JOB_TENANT_MISMATCH, X_JOB_KEY_INVALID for an input that names none.
func CheckTenant(j *manifest.Job, r *job.Run) error {
	if j.Tenant.None {
		return nil
	}
	rendered, err := j.Tenant.Render(r.Input, r.ID)
	if err != nil {
		return refused(j, err)
	}
	if r.Tenant != "" && r.Tenant != rendered {
		return mismatch(j, r.Tenant, rendered)
	}
	return nil
}

func mismatch(j *manifest.Job, said, rendered string) error {
	return &abi.Error{
		Code: job.CodeTenantMismatch,
		Message: fmt.Sprintf("the run of job %q is for tenant %q, but its input says %q",
			j.Name, clip(said, 64), clip(rendered, 64)),
		Fix: "enqueue it for the tenant that its input names",
	}
}

// keyFor is the idempotency key of a run.
func keyFor(j *manifest.Job, said string, input []byte, id string) (string, error) {
	if said != "" {
		return said, nil
	}
	key, err := j.Key.Render(input, id)
	if err != nil {
		return "", refused(j, err)
	}
	if key == "" {
		return "", &abi.Error{
			Code:    job.CodeKeyInvalid,
			Message: fmt.Sprintf("the idempotency key of job %q is empty", j.Name),
			Fix:     "give the job a key template, or the enqueue a key",
		}
	}
	return key, nil
}

// gateFor is the limit that a run is under.
func gateFor(j *manifest.Job, input []byte, id string) (string, error) {
	gate, err := j.Gate(input, id)
	if err != nil {
		return "", refused(j, err)
	}
	if kind, _, key := limit.ParseGate(gate); kind == limit.KindKey && key == "" {
		return "", &abi.Error{
			Code:    job.CodeKeyInvalid,
			Message: fmt.Sprintf("the concurrency key of job %q is empty", j.Name),
			Fix:     "give the fields that it is made of a value",
		}
	}
	return gate, nil
}

// refused names the job whose template could not be rendered.
func refused(j *manifest.Job, err error) error {
	code := abi.CodeOf(err)
	if code == "" {
		code = job.CodeKeyInvalid
	}
	e := &abi.Error{Code: code, Message: fmt.Sprintf("job %q: %v", j.Name, err), Err: err}
	if inner, ok := err.(*abi.Error); ok {
		e.Message, e.Fix = fmt.Sprintf("job %q: %s", j.Name, inner.Message), inner.Fix
	}
	return e
}
