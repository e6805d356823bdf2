package idemlambda

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"strconv"
	"time"

	"github.com/idem-go/idempotency/idem"
)

// StepFunctionsRetention is the default retention of an operation behind a state machine:
// a failed execution can be redriven for 14 days
// (https://docs.aws.amazon.com/step-functions/latest/dg/redrive-executions.html), and
// one day is for the last retries.
const StepFunctionsRetention = 15 * 24 * time.Hour

// Task is the event that a state machine sends with these Parameters of the state:
//
//	"Parameters": {
//	  "executionId.$": "$$.Execution.Id",
//	  "stateName.$": "$$.State.Name",
//	  "stateEnteredTime.$": "$$.State.EnteredTime",
//	  "itemIndex.$": "$$.Map.Item.Index",   (inside a Map state only, see TaskState)
//	  "taskToken.$": "$$.Task.Token",       (for .waitForTaskToken only)
//	  "input.$": "$"
//	}
//
// (https://docs.aws.amazon.com/step-functions/latest/dg/input-output-contextobject.html).
// Other members are ignored.
type Task struct {
	ExecutionID      string `json:"executionId"`
	StateName        string `json:"stateName"`
	StateEnteredTime string `json:"stateEnteredTime"`
	// ItemIndex tells the iterations of a Map state apart; nil outside one.
	ItemIndex *int   `json:"itemIndex"`
	TaskToken string `json:"taskToken"`
	// Input is the state's own.
	Input json.RawMessage `json:"input"`
}

// TaskKeyFunc finds tenant and value of the key in a task.
type TaskKeyFunc = RecordKeyFunc[Task]

// StepFunctions makes an idempotent handler of a state machine's Lambda tasks.
//
// If the state has a Retry, Step Functions invokes a task again after an error or a
// time-out, with the same execution, state and entered time
// (https://docs.aws.amazon.com/step-functions/latest/dg/concepts-error-handling.html).
// A whole asynchronous Express workflow may run more than once
// (https://docs.aws.amazon.com/step-functions/latest/dg/express-at-least-once-execution.html),
// and a state machine may be started twice. The second run may enter a state at another
// time, so take the key from the input there.
//
// A nil key is [TaskState]. In is decoded from the task's input, and the fingerprint is
// that of the input; [TaskOf] returns the whole task. Result and errors are those of
// [Wrap], so that Retry and Catch can distinguish the engine's answers by their error
// names: an InFlightError is worth a Retry, an OutcomeUnknownError is not. The retention is
// [StepFunctionsRetention] if the operation has none. A redrive may come within 14 days: a
// retention of no more than that is a mistake in the set-up of an operation that is not
// repeatable. Mistakes in the set-up panic with a [*idem.ConfigError].
func StepFunctions[In, Out any](engine *idem.Engine, op idem.Operation, key TaskKeyFunc,
	fn func(context.Context, In) (Out, error), o ...WrapOption) Handler {
	key = keyOr(key, TaskState)
	op = withRetention(op, StepFunctionsRetention)
	inner := wrap("idemlambda.StepFunctions", engine, op,
		func(ctx context.Context, _ json.RawMessage) (string, string, error) {
			task, _ := ctx.Value(recordKey[Task]{}).(*Task)
			return key(ctx, task)
		}, fn, o)
	if err := eventWindow("a state machine, by a redrive,", redriveWindow).check("idemlambda.StepFunctions",
		op, slog.Default()); err != nil {
		panic(err)
	}
	return func(ctx context.Context, payload []byte) ([]byte, error) {
		if isDurable(payload) {
			return nil, toRuntime(ErrDurableExecution)
		}
		var task Task
		if err := json.Unmarshal(payload, &task); err != nil {
			return nil, err
		}
		if task.Input == nil {
			return nil, toRuntime(fmt.Errorf("%w: the event has no input: send it as the Parameters of idemlambda.Task say",
				idem.ErrKeyInvalid))
		}
		return inner(context.WithValue(ctx, recordKey[Task]{}, &task), task.Input)
	}
}

// TaskOf returns the task whose handler or key function has the context, and false
// outside one.
func TaskOf(ctx context.Context) (Task, bool) { return recordOf[Task](ctx) }

// TaskState takes the key from the execution, the state and the time at which it was
// entered, and inside a Map state also from the item's index. The key is the same in all
// retries of a task, and another one each time a loop enters the state again.
//
// It does not suit every task. In nested Map states the index is that of the inner Map:
// items of two outer iterations may be entered in the same millisecond, so the key must
// also tell the outer iterations apart. A task that waits for a callback and has a Retry
// needs [TaskToken]: a replay would not pass on the new token. AWS does not document
// whether a redrive enters a state at a new time. If a second run would do harm, take the
// key from the input. If you want a second run after a permanent failure, start a new
// execution.
func TaskState(_ context.Context, t *Task) (tenant, value string, err error) {
	named := [][2]string{
		{"executionId", t.ExecutionID}, {"stateName", t.StateName}, {"stateEnteredTime", t.StateEnteredTime},
	}
	if t.ItemIndex != nil {
		named = append(named, [2]string{"itemIndex", strconv.Itoa(*t.ItemIndex)})
	}
	return parts("task", named...)
}

// TaskToken takes the key from the task's token, which identifies one wait for a callback.
// Each Retry of a task gets a new token, and so runs again.
func TaskToken(_ context.Context, t *Task) (tenant, value string, err error) {
	return parts("task", [2]string{"taskToken", t.TaskToken})
}
