package dynamostore

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"github.com/idem-go/idempotency/idem/protocol"
)

// Defaults of a client.
const (
	// DefaultMaxIdleConns is the number of connections kept open. The SDK keeps 10,
	// which makes every caller beyond the tenth dial again.
	DefaultMaxIdleConns = 64
	// DefaultDialTimeout is for the TCP connection and again for TLS: a dead address
	// must not use up a try, and a failed dial proves that nothing was sent.
	DefaultDialTimeout = 500 * time.Millisecond

	// idleTimeout is below the minutes after which load balancers and NAT gateways
	// forget a connection.
	idleTimeout = 90 * time.Second
	keepAlive   = 15 * time.Second
)

// ClientOptions of a client. The zero value, and nil, mean the defaults.
type ClientOptions struct {
	// Endpoint is the URL of a DynamoDB Local. With it, a missing region and missing
	// credentials are made up, since DynamoDB Local takes any. Empty means AWS, or
	// what cfg says.
	Endpoint string

	// MaxIdleConns is the number of connections kept open; it should be the number
	// of calls that the process makes at once. Zero means [DefaultMaxIdleConns].
	MaxIdleConns int

	// DialTimeout bounds the TCP connection, and TLS after it. Zero means
	// [DefaultDialTimeout].
	DialTimeout time.Duration

	// Transport replaces the client's own, and the one in the configuration.
	// MaxIdleConns and DialTimeout are not for it, and an error together with it.
	Transport http.RoundTripper
}

// NewClient returns a client that suits a [Store]: without retries of its own,
// with enough idle connections and short dial time-outs. It makes no call.
// Mistakes are an [*idem.ConfigError].
//
// An HTTP client in the configuration is used: that of the SDK
// ([awshttp.BuildableClient], which config.LoadDefaultConfig makes for AWS_CA_BUNDLE)
// with its proxy, its TLS and whatever differs from the SDK's defaults, and with this
// package's connections and time-outs for what does not; an [*http.Client] with its
// transport, which brings its own; any other as it is. The retryer and the number of
// attempts in it have no effect: the store makes the tries itself.
func NewClient(cfg aws.Config, o *ClientOptions) (*dynamodb.Client, error) {
	o = cmp.Or(o, &ClientOptions{})
	invalid := func(what, format string, args ...any) (*dynamodb.Client, error) {
		return nil, &protocol.ConfigError{What: "dynamostore: " + what, Problem: fmt.Sprintf(format, args...)}
	}
	switch u, err := url.Parse(o.Endpoint); {
	case o.Endpoint != "" && (err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https"):
		return invalid("ClientOptions.Endpoint", "is %q: use a URL such as http://127.0.0.1:8000", o.Endpoint)
	case o.MaxIdleConns < 0:
		return invalid("ClientOptions.MaxIdleConns", "is %d: it cannot be negative", o.MaxIdleConns)
	case tooShort(o.DialTimeout):
		return invalid("ClientOptions.DialTimeout", needsUnit, o.DialTimeout)
	case o.Endpoint == "" && cfg.Region == "":
		return invalid("region", "is missing: set AWS_REGION, or Region in the aws.Config")
	case o.Transport != nil && o.tunes():
		return invalid("ClientOptions.Transport",
			"is given together with MaxIdleConns or DialTimeout, which are not for it: set them in the transport")
	case o.Transport == nil && ownTransport(cfg.HTTPClient) && o.tunes():
		return invalid("ClientOptions",
			"has MaxIdleConns or DialTimeout, and the aws.Config has an HTTPClient of its own (%T), "+
				"which they are not for: set them there, or leave that out", cfg.HTTPClient)
	}
	return dynamodb.NewFromConfig(cfg, func(d *dynamodb.Options) {
		d.HTTPClient = httpClient(cfg.HTTPClient, o)
		d.Retryer = aws.NopRetryer{}
		// The SDK checks a CRC-32 only if it reads a reply to its end, which it does
		// not with a failed condition: every replay would log a warning. TLS, strict
		// decoding and the digests of parts hold the bytes together.
		d.DisableValidateResponseChecksum = true
		if o.Endpoint == "" {
			return
		}
		d.BaseEndpoint = &o.Endpoint
		if d.Region == "" {
			d.Region = "local"
		}
		if cfg.Credentials == nil {
			d.Credentials = aws.CredentialsProviderFunc(localCredentials)
		}
	}), nil
}

// tunes reports whether the options say something of a transport.
func (o *ClientOptions) tunes() bool { return o.MaxIdleConns != 0 || o.DialTimeout != 0 }

// ownTransport reports whether the configuration's client brings connections and
// time-outs that are not ours to set.
func ownTransport(given aws.HTTPClient) bool {
	switch c := given.(type) {
	case nil, *awshttp.BuildableClient:
		return false
	case *http.Client:
		return c != nil && c.Transport != nil
	}
	return true
}

// httpClient makes the client from what is given.
func httpClient(given aws.HTTPClient, o *ClientOptions) aws.HTTPClient {
	// DynamoDB redirects no request, and a followed redirect would be a second try.
	c := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	if o.Transport != nil {
		c.Transport = o.Transport
		return c
	}
	switch g := given.(type) {
	case nil:
	case *awshttp.BuildableClient:
		return tune(g, o)
	case *http.Client:
		if g != nil {
			same := *g
			if same.CheckRedirect == nil {
				same.CheckRedirect = c.CheckRedirect
			}
			c = &same
		}
	default:
		return given
	}
	if c.Transport == nil {
		c.Transport = newTransport(o)
	}
	return c
}

// tune sets what the SDK's client leaves at the SDK's defaults. A DialContext that
// is set stays, bounded by our time-out.
func tune(b *awshttp.BuildableClient, o *ClientOptions) *awshttp.BuildableClient {
	own := newTransport(o)
	dial := own.TLSHandshakeTimeout
	bounds := o.DialTimeout != 0 || b.GetDialer().Timeout == awshttp.DefaultDialConnectTimeout
	return b.WithTransportOptions(func(t *http.Transport) {
		if next := t.DialContext; bounds && next != nil {
			t.DialContext = func(ctx context.Context, network, addr string) (net.Conn, error) {
				ctx, cancel := context.WithTimeout(ctx, dial)
				defer cancel()
				return next(ctx, network, addr)
			}
		}
		if o.DialTimeout != 0 || t.TLSHandshakeTimeout == awshttp.DefaultHTTPTransportTLSHandleshakeTimeout {
			t.TLSHandshakeTimeout = dial
		}
		if o.MaxIdleConns != 0 || t.MaxIdleConnsPerHost == awshttp.DefaultHTTPTransportMaxIdleConnsPerHost {
			t.MaxIdleConnsPerHost = own.MaxIdleConnsPerHost
			t.MaxIdleConns = max(t.MaxIdleConns, own.MaxIdleConns)
		}
		t.DisableCompression = true
	})
}

func newTransport(o *ClientOptions) *http.Transport {
	conns, dial := cmp.Or(o.MaxIdleConns, DefaultMaxIdleConns), cmp.Or(o.DialTimeout, DefaultDialTimeout)
	return &http.Transport{
		Proxy:               http.ProxyFromEnvironment,
		DialContext:         (&net.Dialer{Timeout: dial, KeepAlive: keepAlive}).DialContext,
		TLSHandshakeTimeout: dial,
		MaxIdleConns:        conns,
		MaxIdleConnsPerHost: conns,
		IdleConnTimeout:     idleTimeout,
		DisableCompression:  true,
	}
}

// localCredentials are for DynamoDB Local, which takes any key of letters and
// digits.
func localCredentials(context.Context) (aws.Credentials, error) {
	return aws.Credentials{AccessKeyID: "local", SecretAccessKey: "local"}, nil
}
