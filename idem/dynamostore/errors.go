package dynamostore

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/smithy-go"
	smithyhttp "github.com/aws/smithy-go/transport/http"

	"github.com/idem-go/idempotency/idem/protocol"
)

// verdict is what a failed try means.
type verdict struct {
	// again: the same request may succeed later.
	again bool
	// maybe: the request may have been applied, or may still be.
	maybe bool
	// down: DynamoDB could not be reached, did not answer, was too busy or failed by
	// itself. Everything else is an answer, or was never asked.
	down bool
	// throttled: it said that it was too busy.
	throttled bool
}

// judge tells failed tries apart: what DynamoDB answered, and what the network
// did. What it does not know counts as sent and not answered.
func judge(err error) verdict {
	if _, early := errors.AsType[*unsent](err); early {
		// What was not ready in time may be so at the next try.
		return verdict{again: errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)}
	}
	if stopped, ok := errors.AsType[*cancelled](err); ok {
		return verdict{again: stopped.again}
	}
	var api smithy.APIError
	if errors.As(err, &api) {
		v := judgeAnswer(api.ErrorCode(), statusOf(err))
		var skewed interface{ RetryableError() bool }
		if !v.maybe && errors.As(err, &skewed) && skewed.RetryableError() {
			// The clock is off by minutes, which DynamoDB calls an invalid signature. The
			// SDK corrects its clock by the answer; the next try is signed again.
			v.again = true
		}
		return v
	}
	if errors.Is(err, errUnprocessed) {
		return verdict{again: true, down: true, throttled: true}
	}
	if op, ok := errors.AsType[*net.OpError](err); ok && op.Op == "dial" {
		return verdict{again: true, down: true}
	}
	if _, untrusted := errors.AsType[*tls.CertificateVerificationError](err); untrusted {
		return verdict{}
	}
	var canceled *smithy.CanceledError
	var sent *smithyhttp.RequestSendError
	var garbled *smithy.DeserializationError
	var operation *smithy.OperationError
	switch {
	case errors.As(err, &canceled), errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded),
		errors.As(err, &sent):
		return verdict{again: true, maybe: true, down: true}
	case statusOf(err) != 0, errors.As(err, &garbled):
		// An answer that cannot be read.
		return verdict{again: true, maybe: true, down: statusOf(err) >= 500}
	case errors.As(err, &operation):
		// The SDK failed before it had a request to send: no region, no credentials,
		// input that it refuses.
		return verdict{}
	}
	return verdict{again: true, maybe: true}
}

// judgeAnswer judges an error that DynamoDB, or what stands before it, sent.
func judgeAnswer(code string, status int) verdict {
	switch code {
	case "ProvisionedThroughputExceededException", "ThrottlingException", "ThrottledException", "Throttling",
		"RequestLimitExceeded", "TooManyRequestsException", "LimitExceededException":
		return verdict{again: true, down: true, throttled: true}
	case
		// Another transaction, or another region's write, holds the item; ours was refused.
		"TransactionConflictException", "ReplicatedWriteConflictException",
		// The SDK corrects its clock by the answer; the next try is signed again.
		"RequestExpired", "RequestTimeTooSkewed", "RequestInTheFuture":
		return verdict{again: true}
	case "TransactionInProgressException":
		// An earlier try of the same transaction is on its way.
		return verdict{again: true, maybe: true}
	case "IdempotentParameterMismatchException":
		// Under our token DynamoDB knows another transaction than this one.
		return verdict{maybe: true}
	case "InternalServerError", "InternalServerErrorException", "InternalFailure", "ServiceUnavailable",
		"RequestTimeout", "RequestTimeoutException":
		return verdict{again: true, maybe: true, down: true}
	}
	switch {
	case status == http.StatusTooManyRequests:
		return verdict{again: true, down: true, throttled: true}
	case status >= 500 || status == http.StatusRequestTimeout:
		return verdict{again: true, maybe: true, down: true}
	case status >= 400:
		return verdict{}
	}
	// An error code in a reply that was no error, or none that can be read.
	return verdict{again: true, maybe: true}
}

func statusOf(err error) int {
	if re, ok := errors.AsType[*smithyhttp.ResponseError](err); ok {
		return re.HTTPStatusCode()
	}
	return 0
}

func isConditionFailed(err error) bool {
	_, failed := errors.AsType[*types.ConditionalCheckFailedException](err)
	return failed
}

// isItemTooLarge recognises DynamoDB's refusal of an item over 400 KB, which
// has no code of its own.
func isItemTooLarge(err error) bool {
	var api smithy.APIError
	return errors.As(err, &api) && api.ErrorCode() == "ValidationException" &&
		strings.Contains(strings.ToLower(api.ErrorMessage()), "item size")
}

// unreadable says which record cannot be read, and why.
func unreadable(id, format string, args ...any) error {
	return fmt.Errorf("%w: record %q: %s", protocol.ErrRecordUnreadable, id, fmt.Sprintf(format, args...))
}
