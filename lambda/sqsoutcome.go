package idemlambda

import "github.com/aws/aws-lambda-go/events"

// SQSOutcome is what became of one message.
type SQSOutcome = Delivery[events.SQSMessage]
