// Package sqsparking sends messages whose permanent failure is recorded to a
// queue of their own, where people look at them.
//
// Such a message is acknowledged: delivering it again could not change its
// outcome, and would only fill the dead-letter queue with what nobody can redrive.
//
//	lambda.Start(idemlambda.SQS(engine, Fulfil, key, &idemlambda.SQSOptions{
//		Parking: sqsparking.New(sqs.NewFromConfig(cfg), parkingURL),
//	}, fulfil))
package sqsparking

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"strings"
	"unicode/utf8"

	"github.com/aws/aws-lambda-go/events"
	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
	"github.com/idem-go/idempotency/idem"
	idemlambda "github.com/idem-go/idempotency/lambda"
)

// Names of the message attributes that a parked message has beside its own, all of
// type String.
const (
	// FailureAttribute is the recorded failure's text, FailureTypeAttribute its type,
	// FailureCodeAttribute its code if it has one.
	FailureAttribute     = "idempotency-failure"
	FailureTypeAttribute = "idempotency-failure-type"
	FailureCodeAttribute = "idempotency-failure-code"
	// RecordAttribute is the id of the record.
	RecordAttribute = "idempotency-record"
	// QueueAttribute is the ARN of the queue that the message comes from,
	// MessageAttribute the id that it had there.
	QueueAttribute   = "idempotency-queue"
	MessageAttribute = "idempotency-message"
)

const (
	// maxAttributes is what SQS takes with a message.
	maxAttributes = 10
	// maxID is what SQS takes as a group or deduplication id.
	maxID = 128
)

// API is what is used of [sqs.Client].
type API interface {
	SendMessage(context.Context, *sqs.SendMessageInput, ...func(*sqs.Options)) (*sqs.SendMessageOutput, error)
}

// New makes a function for [idemlambda.SQSOptions].Parking. It sends body and
// message attributes as they came, and says why beside them: as many of this
// package's attributes, in the order of their declaration, as fit into SQS's limit
// of ten. Characters that SQS does not take are replaced.
//
// A message may be parked twice, if its acknowledgement is lost: the attributes
// [QueueAttribute] and [MessageAttribute] tell. Where the parking queue is FIFO,
// its deduplication by the message's id keeps that within five minutes; messages
// stay in the group that they had, or get one for each record.
//
// The function needs sqs:SendMessage on the parking queue. What cannot be sent is
// an error: the message goes back to its own queue. A nil client and an empty URL
// panic with an [*idem.ConfigError].
func New(client API, queueURL string) func(context.Context, idemlambda.SQSOutcome) error {
	switch {
	case client == nil:
		panic(&idem.ConfigError{What: "sqsparking.New", Problem: "the client is nil: make one with sqs.NewFromConfig"})
	case queueURL == "":
		panic(&idem.ConfigError{What: "sqsparking.New", Problem: "the parking queue's URL is empty"})
	}
	return func(ctx context.Context, out idemlambda.SQSOutcome) error {
		in := &sqs.SendMessageInput{
			QueueUrl: &queueURL, MessageBody: &out.Record.Body, MessageAttributes: attributes(&out),
		}
		if strings.HasSuffix(queueURL, ".fifo") {
			in.MessageGroupId = aws.String(group(&out))
			in.MessageDeduplicationId = aws.String(digest(out.Record.EventSourceARN + " " + out.Record.MessageId + " " + out.KeyID))
		}
		_, err := client.SendMessage(ctx, in)
		return err
	}
}

func group(out *idemlambda.SQSOutcome) string {
	if g := out.Record.Attributes["MessageGroupId"]; g != "" && len(g) <= maxID {
		return g
	}
	return digest(out.KeyID)
}

func digest(s string) string {
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:])
}

func attributes(out *idemlambda.SQSOutcome) map[string]types.MessageAttributeValue {
	all := make(map[string]types.MessageAttributeValue, maxAttributes)
	for name, a := range out.Record.MessageAttributes {
		if v, ok := own(a); ok {
			all[name] = v
		}
	}
	var f idem.Failure
	if out.Failure != nil {
		f = *out.Failure
	}
	why := [][2]string{
		{FailureAttribute, f.Message}, {FailureTypeAttribute, f.Type}, {FailureCodeAttribute, f.Code},
		{RecordAttribute, out.KeyID}, {QueueAttribute, out.Record.EventSourceARN}, {MessageAttribute, out.Record.MessageId},
	}
	for _, a := range why {
		delete(all, a[0]) // of an earlier parking
	}
	for _, a := range why {
		if text := sendable(a[1]); text != "" && len(all) < maxAttributes {
			all[a[0]] = types.MessageAttributeValue{DataType: aws.String("String"), StringValue: &text}
		}
	}
	return all
}

// own is an attribute as it came. SQS sends no others than these.
func own(a events.SQSMessageAttribute) (v types.MessageAttributeValue, ok bool) {
	v.DataType = aws.String(a.DataType)
	switch {
	case a.StringValue != nil:
		v.StringValue = a.StringValue
	case len(a.BinaryValue) > 0:
		v.BinaryValue = a.BinaryValue
	default:
		return v, false
	}
	return v, true
}

// sendable replaces what SQS does not take: see
// https://www.w3.org/TR/REC-xml/#charsets.
func sendable(s string) string {
	return strings.Map(func(r rune) rune {
		if r < 0x20 && r != '\t' && r != '\n' && r != '\r' || r == 0xFFFE || r == 0xFFFF {
			return utf8.RuneError
		}
		return r
	}, s)
}
