package dynamostore

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem/protocol"
)

// doer is a client of somebody else's make.
type doer func(*http.Request) (*http.Response, error)

func (d doer) Do(r *http.Request) (*http.Response, error) { return d(r) }

// The HTTP client of a configuration is where instrumentation, proxies and
// certificates are set: it is used, whatever its make.
func TestClientUsesTheConfigurationsTransport(t *testing.T) {
	var seen atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/x-amz-json-1.0")
		_, _ = w.Write([]byte(`{}`))
	}))
	defer server.Close()
	proxy := func(*http.Request) (*url.URL, error) {
		seen.Add(1)
		return nil, nil
	}
	for name, given := range map[string]aws.HTTPClient{
		"an *http.Client": &http.Client{Transport: &http.Transport{Proxy: proxy}},
		"the SDK's, with a transport": awshttp.NewBuildableClient().WithTransportOptions(func(t *http.Transport) {
			t.Proxy = proxy
		}),
		"the SDK's, with a dialer": awshttp.NewBuildableClient().WithTransportOptions(func(tr *http.Transport) {
			tr.DialContext = func(ctx context.Context, network, addr string) (net.Conn, error) {
				seen.Add(1)
				end, ok := ctx.Deadline()
				require.True(t, ok && time.Until(end) <= DefaultDialTimeout)
				return new(net.Dialer).DialContext(ctx, network, addr)
			}
		}),
		"another's": doer(func(r *http.Request) (*http.Response, error) {
			seen.Add(1)
			return http.DefaultClient.Do(r)
		}),
	} {
		t.Run(name, func(t *testing.T) {
			seen.Store(0)
			client := must(NewClient(aws.Config{HTTPClient: given}, &ClientOptions{Endpoint: server.URL}))
			s := must(New(client, "table", nil))
			require.NoError(t, s.Acquire(t.Context(), base, claim("k", "o1")))
			require.EqualValues(t, 1, seen.Load())
		})
	}
}

// What the SDK's client leaves at the SDK's defaults is the store's; what somebody has set stays.
func TestClientTunesTheSDKsClient(t *testing.T) {
	transport := func(given *awshttp.BuildableClient, o *ClientOptions) *http.Transport {
		o.Endpoint = "http://127.0.0.1:1"
		client := must(NewClient(aws.Config{HTTPClient: given}, o))
		return client.Options().HTTPClient.(*awshttp.BuildableClient).GetTransport()
	}
	plain := transport(awshttp.NewBuildableClient(), &ClientOptions{})
	require.Equal(t, DefaultMaxIdleConns, plain.MaxIdleConnsPerHost)
	require.Equal(t, DefaultDialTimeout, plain.TLSHandshakeTimeout)
	require.NotNil(t, plain.Proxy)
	said := transport(awshttp.NewBuildableClient(), &ClientOptions{MaxIdleConns: 200, DialTimeout: time.Second})
	require.Equal(t, 200, said.MaxIdleConnsPerHost)
	require.Equal(t, 200, said.MaxIdleConns)
	require.Equal(t, time.Second, said.TLSHandshakeTimeout)
	theirs := transport(awshttp.NewBuildableClient().WithTransportOptions(func(t *http.Transport) {
		t.MaxIdleConnsPerHost, t.TLSHandshakeTimeout = 5, 3*time.Second
	}), &ClientOptions{})
	require.Equal(t, 5, theirs.MaxIdleConnsPerHost)
	require.Equal(t, 3*time.Second, theirs.TLSHandshakeTimeout)
}

// An HTTP client without a transport says nothing of connections: they are the store's.
func TestClientKeepsAnHTTPClientsTimeout(t *testing.T) {
	client := must(NewClient(aws.Config{HTTPClient: &http.Client{Timeout: 7 * time.Second}},
		&ClientOptions{Endpoint: "http://127.0.0.1:1", MaxIdleConns: 9}))
	c := client.Options().HTTPClient.(*http.Client)
	require.Equal(t, 7*time.Second, c.Timeout)
	require.Equal(t, 9, c.Transport.(*http.Transport).MaxIdleConnsPerHost)
}

// Connections and time-outs for a transport that brings its own would be dropped.
func TestClientRefusesWhatWouldHaveNoEffect(t *testing.T) {
	own := &http.Client{Transport: &http.Transport{}}
	for name, tc := range map[string]struct {
		cfg aws.Config
		o   ClientOptions
	}{
		"connections for a transport": {aws.Config{}, ClientOptions{Transport: own.Transport, MaxIdleConns: 1}},
		"a time-out for a transport": {aws.Config{},
			ClientOptions{Transport: own.Transport, DialTimeout: time.Second}},
		"connections for the configuration's": {aws.Config{HTTPClient: own}, ClientOptions{MaxIdleConns: 1}},
		"a time-out for another's":            {aws.Config{HTTPClient: doer(nil)}, ClientOptions{DialTimeout: time.Second}},
	} {
		t.Run(name, func(t *testing.T) {
			tc.cfg.Region = "eu-west-1"
			_, err := NewClient(tc.cfg, &tc.o)
			var config *protocol.ConfigError
			require.ErrorAs(t, err, &config)
		})
	}
}

var errNoRole = errors.New("no role for this machine")

// withCredentials is a store whose requests would be seen, and the requests.
func withCredentials(p aws.CredentialsProviderFunc) (*Store, *wire) {
	w := &wire{}
	w.set(func(int, string, *http.Request) (*http.Response, error) { return answer(http.StatusOK, `{}`), nil })
	client := must(NewClient(aws.Config{Region: "eu-west-1", Credentials: p}, &ClientOptions{Transport: w}))
	return must(New(client, "table", nil)), w
}

// notInTime gives no credentials in the time that there is.
func notInTime(ctx context.Context) (aws.Credentials, error) {
	<-ctx.Done()
	return aws.Credentials{}, ctx.Err()
}

// Without credentials nothing is sent. So nothing may have been applied, nothing is
// taken back later, and the error says what is missing.
func TestWithoutCredentialsNothingWasSent(t *testing.T) {
	for _, name := range []string{"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE",
		"AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", "AWS_CONTAINER_CREDENTIALS_FULL_URI"} {
		t.Setenv(name, "")
	}
	t.Setenv("AWS_CONFIG_FILE", filepath.Join(t.TempDir(), "none"))
	t.Setenv("AWS_SHARED_CREDENTIALS_FILE", filepath.Join(t.TempDir(), "none"))
	t.Setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", "http://127.0.0.1:9")
	chain := must(config.LoadDefaultConfig(t.Context(), config.WithRegion("eu-west-1")))
	for _, tc := range []struct {
		name     string
		provider aws.CredentialsProviderFunc
		tries    int // 0 for any
		cause    string
	}{
		{"refused", func(context.Context) (aws.Credentials, error) { return aws.Credentials{}, errNoRole }, 1,
			errNoRole.Error()},
		{"refused by another service", func(context.Context) (aws.Credentials, error) {
			return aws.Credentials{}, refused(api("AccessDeniedException"))
		}, 1, "AccessDeniedException"},
		{"not ready in time", notInTime, 0, context.DeadlineExceeded.Error()},
		{"the default chain, with no answer at the metadata address", chain.Credentials.Retrieve, 0, "get credentials"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			asked := 0
			s, w := withCredentials(func(ctx context.Context) (aws.Credentials, error) {
				asked++
				return tc.provider(ctx)
			})
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

// A try before the one that had no credentials may have arrived.
func TestCredentialsThatRunOutLeaveTheDoubt(t *testing.T) {
	n := 0
	s, w := withCredentials(func(context.Context) (aws.Credentials, error) {
		if n++; n > 1 {
			return aws.Credentials{}, errNoRole
		}
		return localCredentials(context.Background())
	})
	w.set(func(_ int, _ string, req *http.Request) (*http.Response, error) { return w.loseRequest(req) })
	failed := isStoreError(t, s.Acquire(t.Context(), base, claim("k", "o1")), true)
	require.ErrorIs(t, failed, errNoRole)
	require.False(t, failed.Down)
	require.Len(t, w.calls(), 1)
}

// A clock that is off by minutes is corrected by DynamoDB's answer, under which the next try is signed.
func TestASkewedClockIsSignedAnew(t *testing.T) {
	s, w := withCredentials(localCredentials)
	const late = `{"__type":"com.amazon.coral.service#InvalidSignatureException","message":"Signature expired: ` +
		`20300506T070809Z is now earlier than 20300506T071309Z"}`
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
	at := func(date string) time.Time { return must(time.Parse("20060102T150405Z", date)) }
	require.Greater(t, at(dates[1]).Sub(at(dates[0])), 59*time.Minute)
}
