package idemlambda

import (
	"bytes"
	"encoding/json"
	"errors"
)

// ErrDurableExecution is the answer of [Wrap], [Async] and [StepFunctions] to the event of
// a durable execution
// (https://docs.aws.amazon.com/lambda/latest/dg/durable-functions.html). Its errorType is
// DurableExecutionError, and nothing has been executed. Lambda invokes such a function
// again until the execution has ended, each time with what is recorded of it so far. Its
// answers, such as PENDING, are therefore not outcomes: if PENDING were recorded, it would
// be replayed and the execution would never continue. Make the steps idempotent instead,
// with [idem.Do] in their functions. A caller starts the execution once by naming it.
var ErrDurableExecution = errors.New("idemlambda: the event is that of a durable execution, which Lambda invokes again until it has ended, " +
	"so that its answers are no outcomes to record: call idem.Do inside the execution's steps instead of wrapping its handler")

// isDurable recognises what Lambda sends a durable function.
// https://docs.aws.amazon.com/lambda/latest/api/API_CheckpointDurableExecution.html
func isDurable(payload []byte) bool {
	members := []string{"DurableExecutionArn", "CheckpointToken", "InitialExecutionState"}
	for _, name := range members {
		// Most events need not be decoded.
		if !bytes.Contains(payload, []byte(name)) {
			return false
		}
	}
	var event map[string]json.RawMessage // by exact names
	if json.Unmarshal(payload, &event) != nil {
		return false
	}
	for _, name := range members {
		if event[name] == nil {
			return false
		}
	}
	return true
}
