package idemlambda

import (
	"fmt"
	"log/slog"
	"time"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/schema"
)

// How long a service may deliver the same thing again, by its documentation: its default for
// Kinesis and Kafka, which can keep records for longer, and otherwise the longest. The
// default retentions of the sources are longer: if a record expires earlier, a late delivery
// runs again.
const (
	day = 24 * time.Hour
	// asyncWindow is how long Lambda keeps an asynchronous event.
	// https://docs.aws.amazon.com/lambda/latest/dg/invocation-async-error-handling.html
	asyncWindow = 6 * time.Hour
	// snsWindow is SNS's time to pass on a notification, plus Lambda's.
	snsWindow = 23*day + asyncWindow
	// eventBridgeWindow is EventBridge's time to pass on an event, plus Lambda's.
	eventBridgeWindow = day + asyncWindow
	// sqsWindow is the longest that a queue keeps a message.
	// https://docs.aws.amazon.com/AWSSimpleQueueService/latest/SQSDeveloperGuide/quotas-messages.html
	sqsWindow = 14 * day
	// redriveWindow is how long after its failure an execution can be redriven.
	// https://docs.aws.amazon.com/step-functions/latest/dg/redrive-executions.html
	redriveWindow = 14 * day
	// streamWindow is how long streams keep records: Kinesis by default, DynamoDB always.
	streamWindow = day
	// topicWindow is how long Kafka keeps records by default.
	// https://kafka.apache.org/documentation/#brokerconfigs_log.retention.hours
	topicWindow = 7 * day
)

// window is how long a source may deliver the same thing again.
type window struct {
	source string // in errors
	length time.Duration
	env    string // the variable that sets another length
}

// check refuses a retention within the window if a second run would do harm, and
// otherwise warns about it.
func (w window) check(what string, op idem.Operation, log *slog.Logger) error {
	length, from := w.length, w.source
	n, err := envNumber(w.env, maxWindow, "the seconds for which the source may deliver the same event again")
	switch {
	case err != nil:
		return err
	case n > 0:
		length, from = time.Duration(n)*time.Second, "the source, by "+w.env+","
	}
	if op.Retention > length {
		return nil
	}
	problem := fmt.Sprintf("Retention is %v, and %s may deliver the same event again for %v: a late delivery would find "+
		"no record and run again; set a longer Retention, or leave it out for the source's default, or set %s to the "+
		"seconds for which your source does", op.Retention, from, length, w.env)
	if op.Repeat == idem.NotRepeatable {
		return invalid(what, op, problem)
	}
	log.Warn("idem: "+problem, "operation", op.Name)
	return nil
}

// maxWindow is a year and a day, in seconds: no source keeps anything longer.
const maxWindow = 366 * 24 * 3600

func eventWindow(source string, length time.Duration) window {
	return window{source, length, schema.EnvEventRedelivery}
}
