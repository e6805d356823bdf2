package dynamostore

import (
	"context"
	"errors"
	"net/http"
	"path/filepath"
	"testing"
	"time"

	"github.com/idem-go/idempotency/idem/notice"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/protocol"
)

var errNoRole = errors.New("no role for this machine")

// withCredentials is a store whose requests would be seen, and the requests.
func withCredentials(t *testing.T, p aws.CredentialsProvider) (*Store, *wire) {
	t.Helper()
	w := &wire{}
	w.set(func(int, string, *http.Request) (*http.Response, error) { return answer(http.StatusOK, `{}`), nil })
	client, err := NewClient(aws.Config{Region: "eu-west-1", Credentials: p}, &ClientOptions{Transport: w})
	require.NoError(t, err)
	s, err := New(client, "table", nil)
	require.NoError(t, err)
	return s, w
}

// Without credentials nothing is sent. So nothing may have been applied, nothing is
// taken back later, and the error says what is missing.
func TestWithoutCredentialsNothingWasSent(t *testing.T) {
	for _, tc := range []struct {
		name     string
		provider func(t *testing.T) aws.CredentialsProvider
		tries    int // 0 for any
		cause    string
	}{
		{"refused", func(*testing.T) aws.CredentialsProvider {
			return aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) { return aws.Credentials{}, errNoRole })
		}, 1, errNoRole.Error()},
		{"refused by another service", func(*testing.T) aws.CredentialsProvider {
			return aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
				return aws.Credentials{}, refused(api("AccessDeniedException"))
			})
		}, 1, "AccessDeniedException"},
		{"not ready in time", func(*testing.T) aws.CredentialsProvider {
			return aws.CredentialsProviderFunc(func(ctx context.Context) (aws.Credentials, error) {
				<-ctx.Done()
				return aws.Credentials{}, ctx.Err()
			})
		}, 0, context.DeadlineExceeded.Error()},
		{"the default chain, with nobody at the metadata address", func(t *testing.T) aws.CredentialsProvider {
			for _, name := range []string{"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE", "AWS_WEB_IDENTITY_TOKEN_FILE",
				"AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", "AWS_CONTAINER_CREDENTIALS_FULL_URI"} {
				t.Setenv(name, "")
			}
			t.Setenv("AWS_CONFIG_FILE", filepath.Join(t.TempDir(), "none"))
			t.Setenv("AWS_SHARED_CREDENTIALS_FILE", filepath.Join(t.TempDir(), "none"))
			t.Setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", "http://127.0.0.1:9")
			cfg, err := config.LoadDefaultConfig(t.Context(), config.WithRegion("eu-west-1"))
			require.NoError(t, err)
			return cfg.Credentials
		}, 0, "get credentials"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			provider := tc.provider(t)
			asked := 0
			s, w := withCredentials(t, aws.CredentialsProviderFunc(func(ctx context.Context) (aws.Credentials, error) {
				asked++
				return provider.Retrieve(ctx)
			}))
			ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
			defer cancel()
			failed := isStoreError(t, s.Acquire(ctx, base, claim("k", "o1")), false)
			require.False(t, failed.Down, "nothing is known of DynamoDB")
			require.ErrorContains(t, failed, tc.cause)
			require.ErrorContains(t, failed, "nothing was sent")
			require.NotContains(t, failed.Error(), "may have been applied")
			var config *protocol.ConfigError
			require.ErrorAs(t, failed, &config)
			require.Empty(t, w.calls())
			if tc.tries > 0 {
				require.Equal(t, tc.tries, asked, "what is missing for certain is not asked for again")
			}
		})
	}
}

// The engine: the call fails closed, whatever its policy, and nothing is kept for later.
func TestWithoutCredentialsNothingIsQueued(t *testing.T) {
	s, w := withCredentials(t, aws.CredentialsProviderFunc(func(ctx context.Context) (aws.Credentials, error) {
		<-ctx.Done()
		return aws.Credentials{}, ctx.Err()
	}))
	told := func(_ context.Context, n notice.Notice) {
		require.NotContains(t, []notice.Kind{notice.OutcomeQueued, notice.Withdrawn, notice.FailedOpen}, n.Kind, "nothing was sent")
	}
	e, err := idem.New(s, &idem.Options{ClaimBudget: 200 * time.Millisecond, Observer: told})
	require.NoError(t, err)
	op := idem.Operation{Name: "pay", Repeat: idem.Repeatable, OnStoreFailure: idem.FailOpen}
	_, err = idem.Do(t.Context(), e, op.Key("t", "k"), 1, func(context.Context, int) (int, error) { return 1, nil })
	require.ErrorIs(t, err, protocol.ErrStoreUnavailable)
	require.ErrorContains(t, err, "credentials")
	require.NoError(t, e.Flush(t.Context()), "nothing waits")
	require.Empty(t, w.calls())
}

// A try before the one that had no credentials may have arrived.
func TestCredentialsThatRunOutLeaveTheDoubt(t *testing.T) {
	n := 0
	s, w := withCredentials(t, aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
		if n++; n > 1 {
			return aws.Credentials{}, errNoRole
		}
		return localCredentials(context.Background())
	}))
	w.set(func(_ int, _ string, req *http.Request) (*http.Response, error) { return w.loseRequest(req) })
	failed := isStoreError(t, s.Acquire(t.Context(), base, claim("k", "o1")), true)
	require.ErrorIs(t, failed, errNoRole)
	require.False(t, failed.Down)
	require.Len(t, w.calls(), 1)
}

// A clock that is off by minutes is corrected by DynamoDB's answer, under which the
// next try is signed.
func TestASkewedClockIsSignedAnew(t *testing.T) {
	s, w := withCredentials(t, aws.CredentialsProviderFunc(localCredentials))
	const late = `{"__type":"com.amazon.coral.service#InvalidSignatureException","message":"Signature expired: 20300506T070809Z is now earlier than 20300506T071309Z"}`
	var dates []string
	w.set(func(n int, _ string, req *http.Request) (*http.Response, error) {
		dates = append(dates, req.Header.Get("X-Amz-Date"))
		reply := answer(http.StatusOK, `{}`)
		if n == 0 {
			reply = answer(http.StatusBadRequest, late)
		}
		reply.Header.Set("Date", time.Now().Add(time.Hour).UTC().Format(http.TimeFormat))
		return reply, nil
	})
	require.NoError(t, s.Acquire(t.Context(), base, claim("k", "o1")))
	require.Len(t, dates, 2)
	first, err := time.Parse("20060102T150405Z", dates[0])
	require.NoError(t, err)
	second, err := time.Parse("20060102T150405Z", dates[1])
	require.NoError(t, err)
	require.Greater(t, second.Sub(first), 59*time.Minute)
}
