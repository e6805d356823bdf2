package gateway

import (
	"cmp"
	"crypto/rand"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"mime"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/aws/aws-lambda-go/events"

	"github.com/idem-go/idempotency/local/aws/iam"
)

// hopByHop headers concern one connection (RFC 9110, 7.6.1) and are not passed on.
var hopByHop = []string{
	"connection", "keep-alive", "proxy-authenticate", "proxy-authorization", "proxy-connection",
	"te", "trailer", "transfer-encoding", "upgrade",
}

// event is payload format 2.0, of an HTTP API or a function URL, and the request's id.
func (h *Handler) event(in Request) (any, string) {
	r, body, now := in.Request, in.body, in.at
	sourceIP := sourceOf(r)
	event := events.APIGatewayV2HTTPRequest{
		Version:               "2.0",
		RouteKey:              in.match.key,
		RawPath:               r.URL.Path,
		RawQueryString:        r.URL.RawQuery,
		Cookies:               cookies(r),
		Headers:               headers(r, sourceIP, len(body), now),
		QueryStringParameters: joinQuery(r.URL.RawQuery),
		PathParameters:        in.parameters,
		RequestContext: events.APIGatewayV2HTTPRequestContext{
			RouteKey:     in.match.key,
			AccountID:    iam.Account,
			Stage:        cmp.Or(h.options.Stage, defaultRoute), // function URLs have none and send $default
			RequestID:    requestID(),
			APIID:        h.options.APIID,
			DomainName:   h.options.domain(),
			DomainPrefix: h.options.APIID,
			Time:         now.UTC().Format("02/Jan/2006:15:04:05 -0700"),
			TimeEpoch:    now.UnixMilli(),
			HTTP: events.APIGatewayV2HTTPRequestContextHTTPDescription{
				Method:    r.Method,
				Path:      r.URL.Path,
				Protocol:  r.Proto,
				SourceIP:  sourceIP,
				UserAgent: r.UserAgent(),
			},
		},
	}
	type by = events.APIGatewayV2HTTPRequestContextAuthorizerDescription
	switch s := in.caller.Signer; {
	case in.caller.Claims != nil:
		jwt := &events.APIGatewayV2HTTPRequestContextAuthorizerJWTDescription{Claims: in.caller.Claims}
		event.RequestContext.Authorizer = &by{JWT: jwt}
	case s != nil:
		event.RequestContext.Authorizer = &by{IAM: &events.APIGatewayV2HTTPRequestContextAuthorizerIAMDescription{
			AccountID: s.AccountID, CallerID: s.UserID, UserID: s.UserID, UserARN: s.ARN,
		}}
	case in.caller.Context != nil:
		event.RequestContext.Authorizer = &by{Lambda: in.caller.Context}
	}
	if h.options.Flavour == FunctionURL && in.caller.Signer == nil {
		event.RequestContext.AccountID = "anonymous" // AuthType NONE
	}
	event.Body, event.IsBase64Encoded = encodeBody(body, r.Header.Get("Content-Type"))
	return event, event.RequestContext.RequestID
}

func sourceOf(r *http.Request) string {
	ip, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		return r.RemoteAddr
	}
	return ip
}

// headers are lower-cased; repeats are joined with a bare comma.
func headers(r *http.Request, sourceIP string, length int, now time.Time) map[string]string {
	drop := slices.Clone(hopByHop)
	for _, nominated := range r.Header.Values("Connection") {
		for name := range strings.SplitSeq(nominated, ",") {
			drop = append(drop, strings.ToLower(strings.TrimSpace(name)))
		}
	}
	joined := map[string]string{}
	for name, values := range r.Header {
		name = strings.ToLower(name)
		if name != "cookie" && !slices.Contains(drop, name) {
			joined[name] = strings.Join(values, ",")
		}
	}
	joined["host"] = r.Host
	if length > 0 || r.ContentLength == 0 && r.Header.Get("Content-Length") != "" {
		joined["content-length"] = strconv.Itoa(length)
	}
	if forwarded := joined["x-forwarded-for"]; forwarded != "" {
		joined["x-forwarded-for"] = forwarded + ", " + sourceIP
	} else {
		joined["x-forwarded-for"] = sourceIP
	}
	joined["x-forwarded-proto"] = "http"
	if r.TLS != nil {
		joined["x-forwarded-proto"] = "https"
	}
	if local, ok := r.Context().Value(http.LocalAddrContextKey).(net.Addr); ok {
		if _, port, err := net.SplitHostPort(local.String()); err == nil {
			joined["x-forwarded-port"] = port
		}
	}
	if joined["x-amzn-trace-id"] == "" {
		joined["x-amzn-trace-id"] = fmt.Sprintf("Root=1-%08x-%s", now.Unix(), hex.EncodeToString(random(12)))
	}
	return joined
}

func cookies(r *http.Request) []string {
	var list []string
	for _, header := range r.Header.Values("Cookie") {
		for cookie := range strings.SplitSeq(header, ";") {
			if cookie = strings.TrimSpace(cookie); cookie != "" {
				list = append(list, cookie)
			}
		}
	}
	return list
}

// joinQuery decodes names and values; repeats are joined with a bare comma.
func joinQuery(raw string) map[string]string {
	// Parameters that cannot be parsed are left out.
	query, _ := url.ParseQuery(raw)
	if len(query) == 0 {
		return nil
	}
	joined := make(map[string]string, len(query))
	for name, values := range query {
		joined[name] = strings.Join(values, ",")
	}
	return joined
}

// encodeBody returns text for the few media types that the service treats as text.
func encodeBody(body []byte, contentType string) (string, bool) {
	if len(body) == 0 {
		return "", false
	}
	mediaType, _, err := mime.ParseMediaType(contentType)
	text := err == nil && (strings.HasPrefix(mediaType, "text/") ||
		slices.Contains([]string{"application/json", "application/xml", "application/javascript"}, mediaType))
	// Bytes that are not UTF-8 would not survive in JSON.
	if text && utf8.Valid(body) {
		return string(body), false
	}
	return base64.StdEncoding.EncodeToString(body), true
}

// requestID looks like the service's own: 11 bytes in base64.
func requestID() string { return base64.StdEncoding.EncodeToString(random(11)) }

func random(n int) []byte {
	b := make([]byte, n)
	rand.Read(b) // never fails, by its documentation
	return b
}
