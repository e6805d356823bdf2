package dynamostore

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/smithy-go"
	smithyhttp "github.com/aws/smithy-go/transport/http"
	"github.com/stretchr/testify/require"
)

// scripted is a store whose client answers with the errors in turn, the last one for ever, and a count of the tries.
func scripted(errs ...error) (*Store, *int) {
	n := new(int)
	return faked(func(context.Context, any) (item, error) {
		err := errs[min(*n, len(errs)-1)]
		*n++
		return nil, err
	}), n
}

func api(code string) error { return &smithy.GenericAPIError{Code: code, Message: "says DynamoDB"} }

// refused is an error as DynamoDB answers with it.
func refused(err error) error {
	return &smithyhttp.ResponseError{
		Response: &smithyhttp.Response{Response: &http.Response{StatusCode: http.StatusBadRequest}}, Err: err}
}

func status(code int) error {
	return &smithyhttp.ResponseError{
		Response: &smithyhttp.Response{Response: &http.Response{StatusCode: code}},
		Err:      &smithy.GenericAPIError{Code: "UnknownError"},
	}
}

var (
	dialRefused = &smithyhttp.RequestSendError{Err: &net.OpError{Op: "dial", Net: "tcp",
		Err: errors.New("connection refused")}}
	readReset = &smithyhttp.RequestSendError{Err: &net.OpError{Op: "read", Net: "tcp",
		Err: errors.New("connection reset by peer")}}
	eof      = &smithyhttp.RequestSendError{Err: io.EOF}
	canceled = &smithy.CanceledError{Err: context.DeadlineExceeded}
	noRegion = &smithy.OperationError{Err: fmt.Errorf("resolve endpoint: %w", &aws.MissingRegionError{})}
	bare     = &types.ConditionalCheckFailedException{}
	refusal  = &types.ConditionalCheckFailedException{Item: encode(claimedRecord("k", "another"))}
)

// skewed is how the SDK marks an answer that is due to the clock.
type skewed struct{ error }

func (s skewed) Unwrap() error      { return s.error }
func (skewed) RetryableError() bool { return true }

// answered is the SDK's error of an answer.
func answered(code int, body string) error {
	w := &wire{fault: func(int, string, *http.Request) (*http.Response, error) { return answer(code, body), nil }}
	_, err := must(NewClient(aws.Config{}, nowhere(w))).PutItem(context.Background(),
		&dynamodb.PutItemInput{TableName: ptr("table"), Item: key("k")})
	return err
}

func TestJudge(t *testing.T) {
	for _, tc := range []struct {
		name string
		err  error
		want verdict
	}{
		{"provisioned throughput", answered(400, throttled), verdict{again: true, down: true, throttled: true}},
		{"throttling", answered(400, throttling), verdict{again: true, down: true, throttled: true}},
		{"request limit", answered(400, requestLimit), verdict{again: true, down: true, throttled: true}},
		{"too many requests", answered(429, ``), verdict{again: true, down: true, throttled: true}},
		{"transaction conflict", answered(400, conflicting), verdict{again: true}},
		{"internal error", answered(500, internal), verdict{again: true, maybe: true, down: true}},
		{"no body", answered(503, ``), verdict{again: true, maybe: true, down: true}},
		{"a proxy's page", answered(502, `<html>Bad Gateway</html>`), verdict{again: true, maybe: true, down: true}},
		{"cut short", answered(200, `{"Attributes":{"pk"`), verdict{again: true, maybe: true}},
		{"access denied", answered(400, noAccess), verdict{}},
		{"validation", answered(400, invalid), verdict{}},
		{"no table", answered(400, noTable), verdict{}},
		{"own transaction in progress", api("TransactionInProgressException"), verdict{again: true, maybe: true}},
		{"token of another transaction", api("IdempotentParameterMismatchException"), verdict{maybe: true}},
		{"service unavailable", api("ServiceUnavailable"), verdict{again: true, maybe: true, down: true}},
		{"invalid signature", refused(api("InvalidSignatureException")), verdict{}},
		{"clock off by minutes", skewed{refused(api("InvalidSignatureException"))}, verdict{again: true}},
		{"never sent", &unsent{api("AccessDeniedException")}, verdict{}},
		{"not ready in time", &unsent{canceled}, verdict{again: true}},
		{"status 403", status(403), verdict{}},
		{"refused", dialRefused, verdict{again: true, down: true}},
		{"reset", readReset, verdict{again: true, maybe: true, down: true}},
		{"closed", eof, verdict{again: true, maybe: true, down: true}},
		{"time-out", canceled, verdict{again: true, maybe: true, down: true}},
		{"no region", noRegion, verdict{}},
		{"untrusted certificate", &smithyhttp.RequestSendError{Err: &tls.CertificateVerificationError{Err: io.EOF}},
			verdict{}},
		{"unprocessed keys", errUnprocessed, verdict{again: true, down: true, throttled: true}},
		{"anything else", errors.New("what is this"), verdict{again: true, maybe: true}},
	} {
		t.Run(tc.name, func(t *testing.T) { require.Equal(t, tc.want, judge(tc.err)) })
	}
}

// Ambiguous and Down are about all tries together, not about the last one: after one answer DynamoDB is up.
func TestAnErrorIsAboutEveryTry(t *testing.T) {
	denied, throttle := refused(api("AccessDeniedException")), api("ThrottlingException")
	for _, tc := range []struct {
		name        string
		errs        []error
		maybe, down bool
		tries       int // zero for as many as there is time for
	}{
		{"throttled on every try", []error{throttle}, false, true, 0},
		{"silent", []error{canceled}, true, true, 0},
		{"refused, then silent, then failing", []error{dialRefused, canceled, status(503)}, true, true, 0},
		{"an answer among them", []error{throttle, api("TransactionConflictException"), status(503)}, true, false, 0},
		{"clock off by minutes", []error{skewed{refused(api("InvalidSignatureException"))}}, false, false, 0},
		{"throttled, then a status", []error{throttle, status(400)}, false, false, 2},
		{"no table", []error{refused(api("ResourceNotFoundException"))}, false, false, 1},
		{"a conflicting record that cannot be read", []error{bare, canceled}, false, false, 0},
		{"denied", []error{denied}, false, false, 1},
		{"throttled, then denied", []error{throttle, throttle, denied}, false, false, 3},
		{"refused, then denied", []error{dialRefused, denied}, false, false, 2},
		{"time-out, then denied", []error{canceled, denied}, true, false, 2},
		{"reset, then throttled, then denied", []error{readReset, throttle, denied}, true, false, 3},
		{"internal error, then denied", []error{api("InternalServerError"), denied}, true, false, 2},
		{"no region", []error{noRegion}, false, false, 1},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, n := scripted(tc.errs...)
				failed := isStoreError(t, s.Acquire(t.Context(), base, claim("k", "o1")), tc.maybe)
				require.Equal(t, tc.down, failed.Down, "%v", failed)
				require.Equal(t, "Acquire", failed.Op)
				if tc.tries > 0 {
					require.Equal(t, tc.tries, *n)
				}
			})
		})
	}
}

func TestTriesUntilItWorks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, n := scripted(canceled, api("ThrottlingException"), dialRefused, status(503), nil)
		require.NoError(t, s.Acquire(t.Context(), base, claim("k", "o1")))
		require.Equal(t, 5, *n)
	})
	synctest.Test(t, func(t *testing.T) {
		s, _ := scripted(canceled, refusal)
		require.Equal(t, "another", isConflict(t, s.Acquire(t.Context(), base, claim("k", "o1"))).Owner)
	})
}

// A client that never answers takes no more than the caller's time, in several
// tries, each with at most half of what is left.
func TestBudgetHolds(t *testing.T) {
	for _, tc := range []struct {
		name        string
		o           *Options
		deadline    time.Duration
		least, most time.Duration
		tries       int
	}{
		{"the caller's deadline", nil, time.Second, 800 * time.Millisecond, time.Second, 3},
		{"a short deadline", nil, 200 * time.Millisecond, 100 * time.Millisecond, 200 * time.Millisecond, 2},
		{"no deadline", nil, 0, 4 * time.Second, DefaultBudget, 5},
		{"options", &Options{AttemptTimeout: 100 * time.Millisecond, Budget: 300 * time.Millisecond}, 0,
			150 * time.Millisecond, 300 * time.Millisecond, 2},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				tries := 0
				s := must(New(fake(func(ctx context.Context, _ any) (item, error) {
					tries++
					<-ctx.Done()
					return nil, &smithy.CanceledError{Err: ctx.Err()}
				}), "table", tc.o))
				ctx, start := t.Context(), time.Now()
				if tc.deadline > 0 {
					var cancel context.CancelFunc
					ctx, cancel = context.WithTimeout(ctx, tc.deadline)
					defer cancel()
				}
				failed := isStoreError(t, s.Acquire(ctx, base, claim("k", "o1")), true)
				require.ErrorIs(t, failed, context.DeadlineExceeded)
				took := time.Since(start)
				require.GreaterOrEqual(t, took, tc.least)
				require.LessOrEqual(t, took, tc.most)
				require.GreaterOrEqual(t, tries, tc.tries)
			})
		})
	}
}

func TestCancelInThePause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		n := 0
		s := faked(func(context.Context, any) (item, error) {
			if n++; n == 3 {
				cancel()
			}
			return nil, api("ThrottlingException")
		})
		failed := isStoreError(t, s.Finish(ctx, base, completion("k", "o1", nil)), false)
		require.ErrorIs(t, failed, context.Canceled)
		require.Equal(t, 3, n)
		isStoreError(t, s.Acquire(ctx, base, claim("k", "o1")), false)
		require.Equal(t, 3, n, "nothing is sent for a context that has ended")
	})
}

func TestBackoffGrowsAndIsCapped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &retrier{attempt: time.Second, budget: time.Hour}
		k := r.begin(t.Context(), "Get")
		defer k.end()
		for n := range 100 {
			start := time.Now()
			require.True(t, k.pause(n))
			require.Less(t, time.Since(start), min(maxBackoff, firstBackoff<<min(n, 10)))
		}
	})
}

// A write refused before it was sent, and a read that fails, put no write in doubt.
func TestReadsAreNeverInDoubt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := scripted(canceled)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := s.Get(ctx, "k")
		isStoreError(t, err, false)
	})
}

// No process listens, nor does one begin to: nothing was sent, so nothing is in doubt.
func TestRefusedPort(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	tries := &ending{Client: must(NewClient(aws.Config{}, &ClientOptions{Endpoint: "http://127.0.0.1:1"})), end: cancel}
	failed := isStoreError(t, must(New(tries, "table", nil)).Acquire(ctx, base, claim("k", "o1")), false)
	require.ErrorContains(t, failed, "refused")
	require.Equal(t, 3, tries.n)
}

// ending is a client that ends the context after its third write.
type ending struct {
	Client
	end context.CancelFunc
	n   int
}

func (c *ending) PutItem(ctx context.Context, in *dynamodb.PutItemInput,
	o ...func(*dynamodb.Options)) (*dynamodb.PutItemOutput, error) {
	out, err := c.Client.PutItem(ctx, in, o...)
	if c.n++; c.n == 3 {
		c.end()
	}
	return out, err
}

// A request that gets no answer is in doubt, and the caller's time is kept. How the tries share it,
// TestBudgetHolds shows.
func TestASilentEndpoint(t *testing.T) {
	w := &wire{fault: func(_ int, _ string, req *http.Request) (*http.Response, error) {
		<-req.Context().Done()
		return nil, req.Context().Err()
	}}
	ctx, cancel := context.WithTimeout(t.Context(), 400*time.Millisecond)
	defer cancel()
	isStoreError(t, over(w).Acquire(ctx, base, claim("k", "o1")), true)
	require.NotEmpty(t, w.calls())
}
