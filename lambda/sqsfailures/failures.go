// Package sqsfailures forwards messages whose permanent failure is recorded to a
// failure queue, for operators.
//
// Such a message is acknowledged, because another delivery cannot change its outcome. A
// dead letter may succeed after a redrive and this message cannot, so it has another queue.
//
//	lambda.Start(idemlambda.SQS(engine, Fulfil, key, &idemlambda.SQSOptions{
//		OnFailed: sqsfailures.New(sqs.NewFromConfig(cfg), failuresURL),
//	}, fulfil))
package sqsfailures

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/aws/aws-lambda-go/events"
	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
	"github.com/aws/smithy-go"
	"github.com/idem-go/idempotency/idem"
	idemlambda "github.com/idem-go/idempotency/lambda"
)

// Names of the message attributes that are added to a forwarded message, all of type
// String.
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
	// maxAttributes is the most attributes of a message.
	maxAttributes = 10
	// maxID is the longest group or deduplication id.
	maxID = 128
	// maxMessage is SQS's limit, attributes included; a queue's may be lower.
	// https://docs.aws.amazon.com/AWSSimpleQueueService/latest/SQSDeveloperGuide/quotas-messages.html
	maxMessage = 1 << 20
)

// tooLong matches SQS's error for a message that is too long; it has the queue's limit.
var tooLong = regexp.MustCompile(`must be shorter than (\d+) bytes`)

// API has the methods of [sqs.Client] that this package calls.
type API interface {
	SendMessage(context.Context, *sqs.SendMessageInput, ...func(*sqs.Options)) (*sqs.SendMessageOutput, error)
}

// New makes a function for [idemlambda.SQSOptions].OnFailed. It sends the unchanged body and
// message attributes, and adds the reason: as many of this package's attributes, in the order
// of their declaration ([FailureAttribute], [FailureTypeAttribute], [FailureCodeAttribute],
// [RecordAttribute], …), as fit into SQS's limits of ten attributes and of the message's
// length. Characters that SQS does not accept are replaced.
//
// The failure queue's MaximumMessageSize must be no less than the source's. A message
// that is too long for the failure queue even without added attributes can never be
// forwarded, and ends in its own queue's dead-letter queue; the error says so.
//
// A message may be forwarded twice if its acknowledgement is lost; [QueueAttribute] and
// [MessageAttribute] identify it. A FIFO failure queue drops repeats within five minutes
// by the message's id. There messages keep their group, or get one for each record.
//
// The function needs sqs:SendMessage on the failure queue. It returns an error if it
// cannot send, and the message is redelivered. A nil client and an empty URL panic with an
// [*idem.ConfigError].
func New(client API, queueURL string) func(context.Context, idemlambda.SQSDelivery) error {
	switch {
	case client == nil:
		panic(&idem.ConfigError{What: "sqsfailures.New", Problem: "the client is nil: make one with sqs.NewFromConfig"})
	case queueURL == "":
		panic(&idem.ConfigError{What: "sqsfailures.New", Problem: "the failure queue's URL is empty"})
	}
	return func(ctx context.Context, out idemlambda.SQSDelivery) error {
		in := &sqs.SendMessageInput{
			QueueUrl: &queueURL, MessageBody: &out.Event.Body, MessageAttributes: attributes(&out, maxMessage),
		}
		if strings.HasSuffix(queueURL, ".fifo") {
			in.MessageGroupId = aws.String(group(&out))
			in.MessageDeduplicationId = aws.String(digest(out.Event.EventSourceARN + " " + out.Event.MessageId +
				" " + out.RecordID))
		}
		_, err := client.SendMessage(ctx, in)
		limit, refused := limitOf(err)
		if !refused {
			return err
		}
		in.MessageAttributes = attributes(&out, limit)
		if _, err = client.SendMessage(ctx, in); err != nil {
			if _, refused = limitOf(err); refused {
				err = fmt.Errorf("sqsfailures: the message is too long for the failure queue, also as it came: "+
					"raise the failure queue's MaximumMessageSize to the source's: %w", err)
			}
		}
		return err
	}
}

// limitOf returns the queue's limit if the error is that a message is above it.
func limitOf(err error) (limit int, refused bool) {
	api, ok := errors.AsType[smithy.APIError](err)
	if !ok {
		return 0, false
	}
	found := tooLong.FindStringSubmatch(api.ErrorMessage())
	if found == nil {
		return 0, false
	}
	limit, err = strconv.Atoi(found[1])
	return limit, err == nil
}

func group(out *idemlambda.SQSDelivery) string {
	if g := out.Event.Attributes["MessageGroupId"]; g != "" && len(g) <= maxID {
		return g
	}
	return digest(out.RecordID)
}

func digest(s string) string {
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:])
}

// attributes are the message's own, and those with the reason as long as the message stays
// shorter than the limit.
func attributes(out *idemlambda.SQSDelivery, limit int) map[string]types.MessageAttributeValue {
	all := make(map[string]types.MessageAttributeValue, maxAttributes)
	for name, a := range out.Event.MessageAttributes {
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
		{RecordAttribute, out.RecordID}, {QueueAttribute, out.Event.EventSourceARN}, {MessageAttribute, out.Event.MessageId},
	}
	for _, a := range why {
		delete(all, a[0]) // of an earlier forwarding
	}
	length := len(out.Event.Body)
	for name, v := range all {
		length += lengthOf(name, v)
	}
	for _, a := range why {
		text := sendable(a[1])
		v := types.MessageAttributeValue{DataType: aws.String("String"), StringValue: &text}
		if n := lengthOf(a[0], v); text != "" && len(all) < maxAttributes && length+n < limit {
			all[a[0]] = v
			length += n
		}
	}
	return all
}

// lengthOf is what an attribute adds to a message's length.
func lengthOf(name string, v types.MessageAttributeValue) int {
	return len(name) + len(aws.ToString(v.DataType)) + len(aws.ToString(v.StringValue)) + len(v.BinaryValue)
}

// own is an attribute of the received message. SQS sends only these kinds.
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

// sendable replaces characters that SQS does not accept, see
// https://www.w3.org/TR/REC-xml/#charsets.
func sendable(s string) string {
	return strings.Map(func(r rune) rune {
		if r < 0x20 && r != '\t' && r != '\n' && r != '\r' || r == 0xFFFE || r == 0xFFFF {
			return utf8.RuneError
		}
		return r
	}, s)
}
