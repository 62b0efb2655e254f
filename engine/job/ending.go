package job

import "encoding/json"

// MaxEndingOutput is the largest output, in bytes, that an Ending carries: it is
// written once more, into the run that is told, by the commit that ends the first.
const MaxEndingOutput = 64 << 10

// Ending is how a run ended for good, as the run that on_settled enqueues is
// told: its JSON is that run's input. It has the failure's code and none of its
// texts, which are the operator's.
type Ending struct {
	Run      string          `json:"run"`
	Job      string          `json:"job"`
	Tenant   string          `json:"tenant,omitempty"`
	Outcome  Outcome         `json:"outcome"` // of the last attempt
	State    State           `json:"state"`
	Code     string          `json:"code,omitempty"` // of the failure, if it has one
	Attempts int             `json:"attempts"`       // that were counted
	Output   json.RawMessage `json:"output,omitempty"`
	// OutputBytes says that the output was too large to be told.
	OutputBytes int `json:"output_bytes,omitempty"`
}

// Told is the input of the run that is told.
func (e Ending) Told() ([]byte, error) {
	if len(e.Output) > MaxEndingOutput {
		e.OutputBytes, e.Output = len(e.Output), nil
	}
	return json.Marshal(e)
}
