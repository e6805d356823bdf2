package kmsseal

import (
	"errors"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
	"github.com/aws/smithy-go"
)

// passing are the errors after which the SDK tries again: throttling, time-outs, lost connections,
// and statuses of 500 and more.
var passing = retry.IsErrorRetryables(retry.DefaultRetryables)

// passes reports whether the same call to KMS may succeed later. What KMS answers for good is that it
// may not be used, that the key is not the one, disabled or deleted, and that what it was
// given is no wrapped key.
func passes(err error) bool {
	if passing.IsErrorRetryable(err) == aws.TrueTernary {
		return true
	}
	answer, ok := errors.AsType[smithy.APIError](err)
	return !ok || answer.ErrorFault() == smithy.FaultServer || answer.ErrorCode() == "LimitExceededException"
}
