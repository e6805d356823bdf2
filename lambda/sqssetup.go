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

const (
	// AWS recommends a visibility time-out of six times the function's time-out, so
	// that Lambda can try again if the function is throttled, and at least five
	// receives before the dead-letter queue
	// (https://docs.aws.amazon.com/lambda/latest/dg/services-sqs-configure.html).
	sqsVisibilityFactor = 6
	sqsLeastReceives    = 5
	// A larger batch needs a window of at least a second.
	sqsWindowlessBatch = 10

	maxTimeout    = 900       // seconds, Lambda's limit
	maxVisibility = 12 * 3600 // seconds, SQS's limit
)

// sqsSetup has the environment's settings of the function and its queue.
type sqsSetup struct {
	timeout, visibility, window sqsSetting // in seconds
	batch, receives             sqsSetting
	repeat                      string // as stored in records; empty is not known
}

type sqsSetting struct {
	name  string
	value int
	known bool
}

func (s sqsSetting) seconds() time.Duration { return time.Duration(s.value) * time.Second }

// readSQSSetup reads the environment. A variable that is missing or empty is not set.
func readSQSSetup() (s sqsSetup, err error) {
	s.repeat = os.Getenv(schema.EnvQueueRepeat)
	for _, v := range []struct {
		name     string
		to       *sqsSetting
		min, max int
	}{
		{schema.EnvFunctionTimeout, &s.timeout, 1, maxTimeout},
		{schema.EnvQueueVisibility, &s.visibility, 0, maxVisibility},
		{schema.EnvQueueBatchSize, &s.batch, 1, 10_000},
		{schema.EnvQueueBatchWindow, &s.window, 0, 300},
		{schema.EnvQueueMaxReceives, &s.receives, 1, 1000},
	} {
		v.to.name = v.name
		if v.to.value, v.to.known, err = envNumber(v.name, v.min, v.max, "the value that it deploys"); err != nil {
			return s, err
		}
	}
	return s, nil
}

// envNumber reads a number from the environment. An empty variable is not set.
func envNumber(name string, least, most int, meaning string) (n int, set bool, err error) {
	text := os.Getenv(name)
	if text == "" {
		return 0, false, nil
	}
	if n, err = strconv.Atoi(text); err != nil || n < least || n > most {
		return 0, false, &idem.ConfigError{What: "environment variable " + name,
			Problem: fmt.Sprintf("%q is not a whole number from %d to %d: let the stack set it to %s", text,
				least, most, meaning)}
	}
	return n, true, nil
}

// check reports settings that cannot work.
func (s *sqsSetup) check(op idem.Operation) error {
	bad := func(v sqsSetting, format string, args ...any) error {
		return invalid("queue", op, fmt.Sprintf(format, args...)+fmt.Sprintf(" (%s=%d)", v.name, v.value))
	}
	if s.repeat != "" && s.repeat != op.Repeat.String() {
		return invalid("queue", op, fmt.Sprintf("the operation is declared %s and the stack %q (%s): have both say the "+
			"same, redelivery and alarms follow from it",
			op.Repeat, s.repeat, schema.EnvQueueRepeat))
	}
	if need := s.timeout.value + s.window.value; s.timeout.known && s.visibility.known && s.visibility.value < need {
		return bad(s.visibility, "its visibility time-out of %ds is less than the function's time-out of %ds and the "+
			"batch window of %ds: "+
			"messages would be received again while they are worked on; set it to %ds, and no less than %ds",
			s.visibility.value, s.timeout.value, s.window.value, s.goodVisibility(), need)
	}
	if least := minTime(op); s.timeout.known && least > s.usable() {
		return bad(s.timeout, "MinTime is %v, and a function with a time-out of %ds gives its handlers %v at most, so "+
			"that no message could ever start: "+
			"set %sMinTime to at most %v", least, s.timeout.value, s.usable(),
			orTimeout("the time-out to at least %ds, or ", least), s.usable())
	}
	if s.batch.known && s.window.known && s.batch.value > sqsWindowlessBatch && s.window.value == 0 {
		return bad(s.batch, "Lambda takes a batch size of %d with a batch window of at least 1s only: set the window "+
			"to 1s or more, or the batch size to %d",
			s.batch.value, sqsWindowlessBatch)
	}
	return nil
}

// warnings returns texts about settings that work badly.
func (s *sqsSetup) warnings(op idem.Operation, concurrency int) (all []string) {
	warn := func(format string, args ...any) { all = append(all, fmt.Sprintf(format, args...)) }
	if s.timeout.known && s.visibility.known && s.visibility.value < s.goodVisibility() {
		why := "where Lambda is throttled messages may be received once more for nothing"
		if s.visibility.seconds() < s.timeout.seconds()+s.window.seconds()+idem.DefaultMargin {
			why = "a message whose attempt was killed is redelivered while the lease of that attempt is still respected, " +
				"which costs a receive"
		}
		warn("the queue's visibility time-out of %ds is less than %d times the function's time-out of %ds and the batch "+
			"window of %ds: %s; set it to %ds",
			s.visibility.value, sqsVisibilityFactor, s.timeout.value, s.window.value, why, s.goodVisibility())
	}
	if least := minTime(op); s.timeout.known && s.batch.known && least <= s.usable() {
		rounds := (s.batch.value + concurrency - 1) / concurrency
		if fit := int(s.usable() / least); rounds > fit {
			warn("a full batch of %d messages, %d at a time with a MinTime of %v each, does not fit into the %v "+
				"that a time-out of %ds leaves its handlers, "+
				"and the rest is redelivered unused: set %sthe batch size to %d, or Concurrency to %d",
				s.batch.value, concurrency, least, s.usable(), s.timeout.value,
				orTimeout("the time-out to %ds, ", time.Duration(rounds)*least), fit*concurrency, (s.batch.value+fit-1)/fit)
		}
	}
	if s.receives.known && s.receives.value < sqsLeastReceives {
		warn("the queue gives a message up after %d receives, and a message that finds another attempt running or no "+
			"time left spends one: set maxReceiveCount to at least %d",
			s.receives.value, sqsLeastReceives)
	}
	return all
}

func (s *sqsSetup) goodVisibility() int {
	return min(sqsVisibilityFactor*s.timeout.value+s.window.value, maxVisibility)
}

// usable is the time that a whole invocation gives its handlers.
func (s *sqsSetup) usable() time.Duration {
	return s.timeout.seconds() - guardOf(s.timeout.seconds())
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
