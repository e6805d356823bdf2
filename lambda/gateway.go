package idemlambda

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"net/url"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/aws/aws-lambda-go/lambdacontext"
	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/idemhttp"
)

// gateway holds what differs between the kinds of events; the rest is the contract's.
type gateway[E, R any] struct {
	name    string
	request func(*E) *idemhttp.Request
	// from and to translate responses. If the handler did not run, given is zero.
	from func(given *R) *idemhttp.Response
	to   func(event *E, given *R, res *idemhttp.Response) R
	// limit is how long the service waits for the function; zero means until it ends.
	limit time.Duration
	// size is how many bytes of JSON the service takes as the response.
	size int
	// received is when the service got the request, in milliseconds since 1970; nil
	// if the event does not have it.
	received func(*E) int64
}

// handler makes the handler one under the contract.
func (g gateway[E, R]) handler(engine *idem.Engine, routes idemhttp.Routes, tenant idemhttp.TenantFunc,
	o *idemhttp.Options, handler func(context.Context, E) (R, error)) func(context.Context, E) (R, error) {
	contract, err := idemhttp.New(engine, routes, tenant, o)
	if err != nil {
		panic(err)
	}
	if handler == nil {
		panic(&idem.ConfigError{What: "idemlambda." + g.name, Problem: "the handler is nil"})
	}
	return func(ctx context.Context, event E) (R, error) {
		r := g.request(&event)
		r.GatewayDeadline = g.deadline(&event, time.Now())
		if c, ok := lambdacontext.FromContext(ctx); ok {
			r.Identity.TenantID = c.TenantID
		}
		var given, none R
		r.Fits = func(res *idemhttp.Response) bool { return g.fits(&event, &given, res) }
		var own error
		shadow, ran := contract.Shadow(r), false
		res, err := contract.Serve(withKillTime(ctx), r, func(ctx context.Context) (*idemhttp.Response, error) {
			var err error
			given, err = handler(ctx, event)
			own, ran = err, true
			res := g.from(&given)
			if err != nil && res.Status == 0 {
				return nil, recordable(err)
			}
			return res, recordable(err)
		})
		switch {
		case shadow && ran:
			return given, idem.Unmark(own)
		case err != nil:
			return none, fromHandler(err)
		}
		return g.to(&event, &given, asText(res)), nil
	}
}

// deadline is when the service answers the client without the function. It counts from the
// request's arrival, since a cold start takes part of the time. An event that is older than the
// limit is hand-made, or was delayed in a way that says nothing about its client.
func (g gateway[E, R]) deadline(event *E, now time.Time) time.Time {
	if g.limit == 0 {
		return time.Time{}
	}
	if g.received != nil {
		at := time.UnixMilli(g.received(event))
		if age := now.Sub(at); age > 0 && age < g.limit {
			return at.Add(g.limit)
		}
	}
	return now.Add(g.limit)
}

// maxResponse is how many bytes of JSON Lambda returns
// (https://docs.aws.amazon.com/lambda/latest/dg/gettingstarted-limits.html: 6 MB).
const maxResponse = 6_291_556

// roomForMarks is for the headers of a replay, so that it can be returned where the response could.
const roomForMarks = 256

// fits reports whether the service can return the response, and its replay. Most are far smaller than
// the limit, and are not encoded for this: JSON writes no byte of a body as more than six, and of
// headers the services take less than half of their limit.
func (g gateway[E, R]) fits(event *E, given *R, res *idemhttp.Response) bool {
	if 6*len(res.Body) <= g.size/2 {
		return true
	}
	var out bytes.Buffer
	e := json.NewEncoder(&out)
	e.SetEscapeHTML(false) // as aws-lambda-go does, but with WithSetEscapeHTML
	err := e.Encode(g.to(event, given, asText(res)))
	return err == nil && out.Len()+roomForMarks <= g.size
}

// asText encodes a body that is not text in Base64: events are JSON, which would lose its
// bytes. net/http handlers record such bodies.
func asText(res *idemhttp.Response) *idemhttp.Response {
	if res.Base64 || utf8.Valid(res.Body) {
		return res
	}
	text := *res
	text.Body, text.Base64 = base64.StdEncoding.AppendEncode(nil, res.Body), true
	return &text
}

// lines gives every header one line.
func lines(headers map[string]string) map[string][]string {
	out := make(map[string][]string, len(headers))
	values := make([]string, 0, len(headers))
	for name, value := range headers {
		values = append(values, value)
		n := len(values)
		out[name] = values[n-1 : n : n]
	}
	return out
}

// bodyOf decodes a body that the gateway has encoded in Base64.
func bodyOf(body string, isBase64 bool) []byte {
	if isBase64 {
		if raw, err := base64.StdEncoding.DecodeString(body); err == nil {
			return raw
		}
	}
	return []byte(body)
}

// queryOf reads the raw query string, because the event's map joins repeats with
// commas, and values may contain commas. A query that is not well-formed counts as it is.
func queryOf(raw string, joined map[string]string) (query map[string][]string, invalid string) {
	if raw == "" {
		if len(joined) == 0 {
			return nil, ""
		}
		return lines(joined), ""
	}
	q, err := url.ParseQuery(raw)
	if err != nil {
		return nil, raw
	}
	return q, ""
}

// joined puts all headers into one map with one value each. Several values, which
// a response of another gateway may have, become a list (RFC 9110 5.3). Cookies cannot
// be a list: the last one stays.
func joined(res *idemhttp.Response) map[string]string {
	if len(res.MultiHeaders) == 0 {
		return res.Headers
	}
	all := spread(res)
	out := make(map[string]string, len(all))
	for name, values := range all {
		if len(values) > 1 && strings.EqualFold(name, "Set-Cookie") {
			values = values[len(values)-1:]
		}
		if len(values) > 0 {
			out[name] = strings.Join(values, ", ")
		}
	}
	return out
}

// spread puts all headers into one map with any number of values each. If a name is in
// both maps, MultiHeaders wins, as in API Gateway.
func spread(res *idemhttp.Response) map[string][]string {
	out := make(map[string][]string, len(res.Headers)+len(res.MultiHeaders))
	names := make(map[string]bool, len(res.MultiHeaders))
	for name, values := range res.MultiHeaders {
		out[name] = values
		names[strings.ToLower(name)] = true
	}
	for name, value := range res.Headers {
		if !names[strings.ToLower(name)] {
			out[name] = []string{value}
		}
	}
	return out
}
