package dynamostore

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"github.com/idem-go/idempotency/idem"
)

// Defaults of a client.
const (
	// DefaultMaxIdleConns is the number of connections kept open. The SDK keeps 10,
	// which makes every caller beyond the tenth dial anew.
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

	// Transport replaces the client's own; the other fields but Endpoint then have
	// no effect.
	Transport http.RoundTripper
}

// NewClient returns a client that suits a [Store]: without retries of its own,
// with enough idle connections and short dial time-outs. It makes no call.
// Mistakes are an [*idem.ConfigError].
func NewClient(cfg aws.Config, o *ClientOptions) (*dynamodb.Client, error) {
	if o == nil {
		o = &ClientOptions{}
	}
	bad := func(what, format string, args ...any) (*dynamodb.Client, error) {
		return nil, &idem.ConfigError{What: "dynamostore: " + what, Problem: fmt.Sprintf(format, args...)}
	}
	switch u, err := url.Parse(o.Endpoint); {
	case o.Endpoint != "" && (err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https"):
		return bad("ClientOptions.Endpoint", "is %q: use a URL such as http://127.0.0.1:8000", o.Endpoint)
	case o.MaxIdleConns < 0:
		return bad("ClientOptions.MaxIdleConns", "is %d: it cannot be negative", o.MaxIdleConns)
	case o.DialTimeout < 0:
		return bad("ClientOptions.DialTimeout", "is %v: it cannot be negative", o.DialTimeout)
	case o.Endpoint == "" && cfg.Region == "":
		return bad("region", "is missing: set AWS_REGION, or Region in the aws.Config")
	}
	transport := o.Transport
	if transport == nil {
		transport = newTransport(o)
	}
	return dynamodb.NewFromConfig(cfg, func(d *dynamodb.Options) {
		d.HTTPClient = &http.Client{
			Transport: transport,
			// DynamoDB redirects nobody, and a followed redirect would be a second try.
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		}
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

func newTransport(o *ClientOptions) *http.Transport {
	conns, dial := o.MaxIdleConns, o.DialTimeout
	if conns == 0 {
		conns = DefaultMaxIdleConns
	}
	if dial == 0 {
		dial = DefaultDialTimeout
	}
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
