package dynamostore

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
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
			client, err := NewClient(aws.Config{HTTPClient: given}, &ClientOptions{Endpoint: server.URL})
			require.NoError(t, err)
			s, err := New(client, "table", nil)
			require.NoError(t, err)
			require.NoError(t, s.Acquire(t.Context(), base, claim("k", "o1")))
			require.EqualValues(t, 1, seen.Load())
		})
	}
}

// What the SDK's client leaves at the SDK's defaults is the store's; what somebody
// has set stays.
func TestClientTunesTheSDKsClient(t *testing.T) {
	transport := func(given *awshttp.BuildableClient, o *ClientOptions) *http.Transport {
		o.Endpoint = "http://127.0.0.1:1"
		client, err := NewClient(aws.Config{HTTPClient: given}, o)
		require.NoError(t, err)
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
	client, err := NewClient(aws.Config{HTTPClient: &http.Client{Timeout: 7 * time.Second}}, &ClientOptions{Endpoint: "http://127.0.0.1:1", MaxIdleConns: 9})
	require.NoError(t, err)
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
		"connections for a transport":         {aws.Config{}, ClientOptions{Transport: own.Transport, MaxIdleConns: 1}},
		"a time-out for a transport":          {aws.Config{}, ClientOptions{Transport: own.Transport, DialTimeout: time.Second}},
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
