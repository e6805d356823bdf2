package infra

import (
	"cmp"
	"strconv"
	"time"

	"github.com/aws/aws-cdk-go/awscdk/v2/awsiam"
	"github.com/aws/aws-cdk-go/awscdk/v2/awskms"
	"github.com/aws/aws-cdk-go/awscdk/v2/awssqs"
	"github.com/aws/constructs-go/constructs/v10"
	"github.com/aws/jsii-runtime-go"

	"github.com/idem-go/idempotency/idem/schema"
)

// SweeperPackage is the ready sweeper, which asks no provider.
const SweeperPackage = "github.com/idem-go/idempotency/lambda/functions/sweeper"

const (
	// sweepEvery is the time between two sweeps: a claim whose process died is found within
	// two minutes of its lease's end.
	sweepEvery = time.Minute
	// DefaultSweeperTimeout ends a sweep before the next one begins. Two sweeps at the same
	// time do no harm.
	DefaultSweeperTimeout = 50 * time.Second
)

// SweeperProps of a sweeper. The zero value, and nil, mean the defaults.
type SweeperProps struct {
	// Function of the sweeper. An empty Package means [SweeperPackage]: name your own, made
	// with package lambda/sweeping, if the sweep is to ask your providers. A zero Timeout means [DefaultSweeperTimeout].
	Function FunctionProps
	// EscalationQueue gets the questions that the sweep cannot answer. Nil creates one
	// that keeps messages for 14 days; with less than seven EscalationsOld is not raised.
	EscalationQueue awssqs.IQueue
	// EncryptionKey is a customer's KMS key for the queue that is created. Nil means SQS's
	// own.
	EncryptionKey awskms.IKey
	// Concurrency is how many records of a provider are handled at once, up to 256. Zero means the
	// sweeper's default, 8. The provider gets as many requests at once. With many, raise
	// Function.Memory too, by which Lambda gives CPU.
	Concurrency int
}

// Sweeper looks every minute for claims whose process died and for open questions that are
// due: it is a function on a schedule. It raises no alarm itself: name it in
// [MonitoringProps].Sweepers. [NewMonitoring] raises one if no sweep could look for about
// half an hour, whether none began or all failed, and one if questions were escalated.
type Sweeper struct {
	constructs.Construct
	// Function is the sweeper itself.
	Function *Function
	// EscalationQueue gets the questions that the sweep cannot answer, for operators.
	EscalationQueue awssqs.IQueue
}

// NewSweeper returns a sweeper of the table's records. props may be nil. See [Sweeper] on the
// alarm that is raised when it has stopped.
func NewSweeper(scope constructs.Construct, id string, table *Table, props *SweeperProps) *Sweeper {
	p := valueOf(props)
	if p.Function.Package == "" && p.Function.Code == nil {
		p.Function.Package = SweeperPackage
	}
	p.Function.Timeout = cmp.Or(p.Function.Timeout, DefaultSweeperTimeout)
	s := &Sweeper{EscalationQueue: p.EscalationQueue}
	constructs.NewConstruct_Override(s, scope, &id)
	if s.EscalationQueue == nil {
		s.EscalationQueue = failureQueue(s, "Escalations", p.EncryptionKey)
	} else if p.EncryptionKey != nil {
		refuse(s, "EncryptionKey is for the queue that is created: leave it out where there is an EscalationQueue")
	}
	s.Function = NewFunction(s, "Function", &p.Function)
	table.name(s.Function)
	s.Function.AddEnvironment(jsii.String(schema.EnvSweepEscalations), s.EscalationQueue.QueueUrl(), nil)
	if p.Concurrency < 0 || p.Concurrency > schema.MaxSweepConcurrency {
		refuse(s, "Concurrency is %d: use a number up to %d, or zero for the sweeper's default", p.Concurrency,
			schema.MaxSweepConcurrency)
	} else if p.Concurrency > 0 {
		s.Function.AddEnvironment(jsii.String(schema.EnvSweepConcurrency), jsii.String(strconv.Itoa(p.Concurrency)), nil)
	}
	table.GrantSweeper(s.Function)
	if table.strong {
		table.GrantRemover(s.Function)
	}
	allow(s.Function, nil, []string{*s.EscalationQueue.QueueArn()}, "sqs:SendMessage")
	allowKey(s.EscalationQueue.EncryptionMasterKey(), s.Function)
	schedule(s, "Schedule", "Sweeper", "Has the sweeper look for what is due.", s.Function, sweepEvery)
	return s
}

// GrantEscalation allows operators to work off the escalation queue: look at its messages,
// put them back, and delete what is settled.
func (s *Sweeper) GrantEscalation(to awsiam.IGrantable) {
	allow(to, nil, []string{*s.EscalationQueue.QueueArn()}, "sqs:ReceiveMessage", "sqs:ChangeMessageVisibility",
		"sqs:DeleteMessage")
	if key := s.EscalationQueue.EncryptionMasterKey(); key != nil {
		allow(to, nil, []string{*key.KeyArn()}, "kms:Decrypt")
	}
}
