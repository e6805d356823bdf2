package gateway

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"

	"github.com/aws/aws-lambda-go/events"

	"github.com/idem-go/idempotency/local/aws/iam"
)

// restEvent is payload format 1.0: single maps hold the last value. The server
// has made header names canonical, the service keeps the case sent.
func (h *Handler) restEvent(in Request) (any, string) {
	r, body, now, stage := in.Request, in.body, in.at, h.options.Stage
	lines := headerLines(in, http.CanonicalHeaderKey)
	delete(lines, "Content-Length")
	event := events.APIGatewayProxyRequest{
		Resource: in.match.path, Path: in.path, HTTPMethod: r.Method,
		Headers: last(lines), MultiValueHeaders: lines, PathParameters: in.parameters, Body: string(body),
		RequestContext: events.APIGatewayProxyRequestContext{
			AccountID: iam.Account, ResourceID: "local1", Stage: stage, DomainName: h.options.domain(),
			DomainPrefix: h.options.APIID, RequestID: requestID(), ExtendedRequestID: requestID(), Protocol: r.Proto,
			ResourcePath: in.match.path, HTTPMethod: r.Method, Path: "/" + stage + in.path, APIID: h.options.APIID,
			RequestTime: now.UTC().Format("02/Jan/2006:15:04:05 -0700"), RequestTimeEpoch: now.UnixMilli(),
			Identity: events.APIGatewayRequestIdentity{SourceIP: sourceOf(r), UserAgent: r.UserAgent()},
		},
	}
	if query, _ := url.ParseQuery(r.URL.RawQuery); len(query) > 0 {
		event.QueryStringParameters, event.MultiValueQueryStringParameters = last(query), query
	}
	if h.options.binary(r.Header.Get("Content-Type")) && len(body) > 0 {
		event.Body, event.IsBase64Encoded = base64.StdEncoding.EncodeToString(body), true
	}
	event.RequestContext.Authorizer = in.caller.Context
	if in.caller.Claims != nil { // as of a Cognito user pool
		event.RequestContext.Authorizer = map[string]any{"claims": in.caller.Claims}
	}
	if s := in.caller.Signer; s != nil {
		id := &event.RequestContext.Identity
		id.AccountID, id.Caller, id.User, id.UserArn = s.AccountID, s.UserID, s.UserID, s.ARN
	}
	return event, event.RequestContext.RequestID
}

// parseREST reads a function's answer. The service accepts no unknown members, and decodes
// Base64 only if the client accepts a binary type.
func (h *Handler) parseREST(in Request, answer []byte) (response, error) {
	members, err := membersOf(answer)
	if err != nil {
		return response{}, err
	}
	for name := range members {
		switch name {
		case "statusCode", "headers", "multiValueHeaders", "body", "isBase64Encoded":
		default:
			return response{},
				fmt.Errorf("gateway: the function's response has a member %q that payload format 1.0 does not know", name)
		}
	}
	if !h.options.binary(in.Header.Get("Accept")) {
		delete(members, "isBase64Encoded")
	}
	r, err := parseMembers(members)
	if err == nil && r.header.Get("Content-Type") == "text/plain;charset=UTF-8" && string(members["headers"]) == "null" {
		r.header.Set("Content-Type", "application/json")
	}
	return r, err
}

func membersOf(answer []byte) (members map[string]json.RawMessage, err error) {
	if err = json.Unmarshal(answer, &members); err != nil || members["statusCode"] == nil {
		return nil, errors.New("gateway: the function's response is not a JSON object with a statusCode")
	}
	return members, nil
}
