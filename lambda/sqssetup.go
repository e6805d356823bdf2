package idemlambda

import (
	"cmp"
	"fmt"
	"os"
	"strconv"
	"time"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/schema"
)

const maxTimeout = 900 // seconds, Lambda's limit

// sqsSetup has what the environment says of the function and its queue, and what only the code can
// check: a stack does not know the operation.
type sqsSetup struct {
	timeout int    // in seconds; 0 is not known
	batch   int    // 0 is not known
	repeat  string // as stored in records; empty is not known
}

// readSQSSetup reads the environment. A variable that is missing or empty is not set.
func readSQSSetup() (s sqsSetup, err error) {
	const meaning = "the value that it deploys"
	s.repeat = os.Getenv(schema.EnvQueueRepeat)
	if s.timeout, err = envNumber(schema.EnvFunctionTimeout, maxTimeout, meaning); err == nil {
		s.batch, err = envNumber(schema.EnvQueueBatchSize, 10_000, meaning)
	}
	return s, err
}

// envNumber reads a number from 1 from the environment. It returns 0 if the variable is empty.
func envNumber(name string, most int, meaning string) (int, error) {
	text := os.Getenv(name)
	if text == "" {
		return 0, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 || n > most {
		return 0, &idem.ConfigError{What: "environment variable " + name, Problem: fmt.Sprintf(
			"%q is not a whole number from 1 to %d: let the stack set it to %s", text, most, meaning)}
	}
	return n, nil
}

// check reports settings that cannot work.
func (s *sqsSetup) check(op idem.Operation) error {
	if s.repeat != "" && s.repeat != op.Repeat.String() {
		return invalid("queue", op, fmt.Sprintf("the operation is declared %s and the stack %q (%s): have both say the "+
			"same, redelivery and alarms follow from it", op.Repeat, s.repeat, schema.EnvQueueRepeat))
	}
	if least := minTime(op); s.timeout > 0 && least > s.usable() {
		return invalid("queue", op, fmt.Sprintf("MinTime is %v, and a function with a time-out of %ds gives its handlers "+
			"%v at most, so that no message could ever start: set %sMinTime to at most %v (%s)", least, s.timeout,
			s.usable(), orTimeout("the time-out to at least %ds, or ", least), s.usable(), schema.EnvFunctionTimeout))
	}
	return nil
}

// warning returns a text about settings that work badly, or "".
func (s *sqsSetup) warning(op idem.Operation, concurrency int) string {
	least := minTime(op)
	if s.timeout == 0 || s.batch == 0 || least > s.usable() {
		return ""
	}
	rounds, fit := (s.batch+concurrency-1)/concurrency, int(s.usable()/least)
	if rounds <= fit {
		return ""
	}
	return fmt.Sprintf("a full batch of %d messages, %d at a time with a MinTime of %v each, does not fit into the %v "+
		"that a time-out of %ds leaves its handlers, and the rest is redelivered unused: set %sthe batch size to %d, "+
		"or Concurrency to %d", s.batch, concurrency, least, s.usable(), s.timeout,
		orTimeout("the time-out to %ds, ", time.Duration(rounds)*least), fit*concurrency, (s.batch+fit-1)/fit)
}

// usable is the time that a whole invocation gives its handlers.
func (s *sqsSetup) usable() time.Duration {
	whole := time.Duration(s.timeout) * time.Second
	return whole - guardOf(whole)
}

// timeoutFor is the least time-out, in seconds, that gives handlers this time.
func timeoutFor(usable time.Duration) int {
	whole := min(usable+idem.DefaultGuard, usable*4/3)
	return int((whole + time.Second - 1) / time.Second)
}

// orTimeout names that time-out if Lambda allows it.
func orTimeout(format string, usable time.Duration) string {
	if t := timeoutFor(usable); t <= maxTimeout {
		return fmt.Sprintf(format, t)
	}
	return ""
}

func minTime(op idem.Operation) time.Duration { return cmp.Or(op.MinTime, idem.DefaultMinTime) }
