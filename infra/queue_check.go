package infra

import (
	"strings"
	"time"

	"github.com/aws/constructs-go/constructs/v10"
)

const (
	// visibilityFactor leaves Lambda time to try again if it is throttled.
	// https://docs.aws.amazon.com/lambda/latest/dg/services-sqs-configure.html
	visibilityFactor = 6
	// margin is the time that others add to a lease before it counts as lapsed, as in
	// package idem.
	margin = 2 * time.Second

	maxVisibility       = 12 * time.Hour
	maxMessageRetention = 14 * day
	maxWindow           = 5 * time.Minute
	windowlessBatch     = 10
	maxBatch            = 10_000
	maxReceiveCount     = 1000

	// leftToOperators is the least time of a dead letter, with a weekend in it.
	leftToOperators = 4 * day
)

// setDefaults sets the defaults, and puts usable values where there are none, so that
// CDK does not throw before the problems come out.
func (p *QueueProps) setDefaults(timeout time.Duration) (found problems) {
	switch p.Repeat {
	case Repeatable, NotRepeatable:
	case "":
		found.add("Repeat is not declared: say infra.Repeatable or infra.NotRepeatable, as the operation behind the queue " +
			"does; it decides what redelivery means")
	default:
		found.add("Repeat is %q: say infra.Repeatable or infra.NotRepeatable", p.Repeat)
	}
	if p.Queue != nil {
		p.describe(&found)
	}
	p.checkFIFO(&found)
	found.inRange("BatchSize", &p.BatchSize, 1, maxBatch, DefaultBatchSize)
	found.inRange("MaxReceives", &p.MaxReceives, 1, maxReceiveCount, DefaultMaxReceives)
	if p.MaxConcurrency != 0 {
		found.inRange("MaxConcurrency", &p.MaxConcurrency, 2, 1000, 0)
	}
	found.inSeconds("BatchWindow", &p.BatchWindow, 0, maxWindow, 0)
	if p.BatchSize > windowlessBatch && p.BatchWindow == 0 {
		found.add("BatchSize is %d without a BatchWindow: Lambda then takes at most %d; set BatchWindow to a second or "+
			"more, or a smaller BatchSize", p.BatchSize, windowlessBatch)
		p.BatchSize = windowlessBatch
	}
	found.inSeconds("MessageRetention", &p.MessageRetention, time.Minute, maxMessageRetention, DefaultMessageRetention)
	found.inSeconds("Visibility", &p.Visibility, 0, maxVisibility, p.goodVisibility(timeout))
	if least := timeout + p.BatchWindow + margin; p.Visibility < least {
		found.add("Visibility of %v against the function's time-out of %v: a message whose attempt was killed would be "+
			"redelivered while that attempt's lease (the time-out and %v of margin, after %v of batch window) still holds "+
			"its key, and each time spends a receive; set it to %v, and no less than %v",
			p.Visibility, timeout, margin, p.BatchWindow, p.goodVisibility(timeout), least)
	}
	return found
}

// describe checks that the props say how an existing queue is. What they do not say gets a default, so that
// CDK does not throw before the problems come out.
func (p *QueueProps) describe(found *problems) {
	p.FIFO = p.FIFO || *p.Queue.Fifo()
	for _, said := range []struct {
		missing         bool
		name, attribute string
	}{
		{p.Visibility == 0, "Visibility", "VisibilityTimeout"},
		{p.MessageRetention == 0, "MessageRetention", "MessageRetentionPeriod"},
		{p.MaxReceives == 0, "MaxReceives", "maxReceiveCount in RedrivePolicy"},
		{p.DeadLetters == nil, "DeadLetters", "deadLetterTargetArn in RedrivePolicy"},
	} {
		if said.missing {
			found.add("%s of the existing queue is missing: set it to the queue's %s, which aws sqs get-queue-attributes "+
				"--attribute-names All shows; what the queue does not have, give it first", said.name, said.attribute)
		}
	}
	if p.Name != "" || p.PerGroup || p.EncryptionKey != nil {
		found.add("Name, PerGroup and EncryptionKey are for a queue that is created: leave them out where there is a " +
			"Queue, and import it with its key")
	}
	p.Name, p.PerGroup, p.EncryptionKey = "", false, p.Queue.EncryptionMasterKey()
}

func (p *QueueProps) checkFIFO(found *problems) {
	named := strings.HasSuffix(p.Name, ".fifo")
	switch {
	case p.FIFO && p.Name != "" && !named:
		found.add("the FIFO queue is called %q: let its Name end in .fifo", p.Name)
		p.Name += ".fifo"
	case !p.FIFO && named:
		found.add("the standard queue is called %q: set FIFO, or let its Name not end in .fifo", p.Name)
		p.Name = ""
	case !p.FIFO && p.PerGroup:
		found.add("PerGroup is for FIFO queues: set FIFO, or leave it out")
	}
	if !p.FIFO {
		return
	}
	if p.BatchWindow != 0 {
		found.add("BatchWindow is %v: a FIFO queue has none; leave it out", p.BatchWindow)
		p.BatchWindow = 0
	}
	if p.BatchSize > windowlessBatch {
		found.add("BatchSize is %d: a FIFO queue's batch has at most %d messages", p.BatchSize, windowlessBatch)
		p.BatchSize = windowlessBatch
	}
	if p.DeadLetters != nil && !*p.DeadLetters.Fifo() {
		found.add("DeadLetters is a standard queue: a FIFO queue's dead-letter queue is FIFO too")
		p.DeadLetters = nil
	}
}

// advise reports settings that work badly or break the promise.
func (p *QueueProps) advise(at constructs.IConstruct, timeout time.Duration) {
	if good := p.goodVisibility(timeout); p.Visibility >= timeout+p.BatchWindow+margin && p.Visibility < good {
		warn(at, "visibility", "Visibility of %v is less than %d times the function's time-out of %v and the batch window: "+
			"where Lambda is throttled, messages are received once more for nothing; set it to %v",
			p.Visibility, visibilityFactor, timeout, good)
	}
	if p.MaxReceives < DefaultMaxReceives {
		warn(at, "few-receives", "a message is given up after %d receives, and each one that finds another attempt running "+
			"or no time left spends one: set MaxReceives to at least %d", p.MaxReceives, DefaultMaxReceives)
	}
	if left := maxMessageRetention - p.MessageRetention; !p.FIFO && left < leftToOperators {
		warn(at, "short-dead-letters", "a dead letter is as old as its message: one that waited here for %v is deleted "+
			"after %v in the dead-letter queue; set MessageRetention to at most %v", p.MessageRetention, left,
			maxMessageRetention-leftToOperators)
	}
	if p.FIFO && p.Repeat == NotRepeatable {
		warn(at, "blocked-group", "a message whose outcome is unknown blocks its message group for up to %v (%d receives, "+
			"%v each): resolve such records sooner, or lower MaxReceives or Visibility",
			time.Duration(p.MaxReceives)*p.Visibility, p.MaxReceives, p.Visibility)
	}
}

// redelivery is how long a message may come again: after a redrive, from the dead-letter queue too.
func (p *QueueProps) redelivery() time.Duration { return p.MessageRetention + maxMessageRetention }

func (p *QueueProps) goodVisibility(timeout time.Duration) time.Duration {
	return min(visibilityFactor*timeout+p.BatchWindow, maxVisibility)
}
