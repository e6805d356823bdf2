package idemlambda

import "github.com/aws/aws-lambda-go/events"

// SQSDelivery is what became of one message.
type SQSDelivery = Delivery[events.SQSMessage]
