package main

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"strings"

	"github.com/aws/aws-lambda-go/events"

	"github.com/idem-go/idempotency/idem/idemhttp"
	"github.com/idem-go/idempotency/local/proof/contract/internal/script"
)

type (
	requestV2   = events.APIGatewayV2HTTPRequest
	responseV2  = events.APIGatewayV2HTTPResponse
	requestV1   = events.APIGatewayProxyRequest
	responseV1  = events.APIGatewayProxyResponse
	requestURL  = events.LambdaFunctionURLRequest
	responseURL = events.LambdaFunctionURLResponse
	requestALB  = events.ALBTargetGroupRequest
	responseALB = events.ALBTargetGroupResponse
)

func headerOfV2(e *requestV2, name string) string   { return find(e.Headers, nil, name) }
func headerOfV1(e *requestV1, name string) string   { return find(nil, e.MultiValueHeaders, name) }
func headerOfURL(e *requestURL, name string) string { return find(e.Headers, nil, name) }
func headerOfALB(e *requestALB, name string) string {
	return find(e.Headers, e.MultiValueHeaders, name)
}

func find(single map[string]string, multi map[string][]string, name string) string {
	for k, v := range single {
		if strings.EqualFold(k, name) {
			return v
		}
	}
	for k, v := range multi {
		if strings.EqualFold(k, name) && len(v) > 0 {
			return v[0]
		}
	}
	return ""
}

func answerV2(_ *requestV2, a script.Answer) responseV2 {
	return responseV2{StatusCode: a.Status, Headers: joined(a), Cookies: a.Cookies, Body: body(a), IsBase64Encoded: a.Base64}
}

func answerURL(_ *requestURL, a script.Answer) responseURL {
	return responseURL{StatusCode: a.Status, Headers: joined(a), Cookies: a.Cookies, Body: body(a), IsBase64Encoded: a.Base64}
}

func answerV1(_ *requestV1, a script.Answer) responseV1 {
	return responseV1{StatusCode: a.Status, MultiValueHeaders: several(a), Body: body(a), IsBase64Encoded: a.Base64}
}

// answerALB fills the map that the target group's mode wants.
func answerALB(e *requestALB, a script.Answer) responseALB {
	res := responseALB{StatusCode: a.Status, Body: body(a), IsBase64Encoded: a.Base64}
	if e.MultiValueHeaders != nil {
		res.MultiValueHeaders = several(a)
		return res
	}
	res.Headers = joined(a)
	if len(a.Cookies) > 0 {
		res.Headers["Set-Cookie"] = a.Cookies[0]
	}
	return res
}

// joined is for gateways whose responses have one value for each name.
func joined(a script.Answer) map[string]string {
	out := map[string]string{}
	for name, values := range a.Header {
		out[name] = strings.Join(values, ", ")
	}
	return out
}

func several(a script.Answer) map[string][]string {
	out := map[string][]string{}
	for name, values := range a.Header {
		out[name] = values
	}
	if len(a.Cookies) > 0 {
		out["Set-Cookie"] = a.Cookies
	}
	return out
}

func body(a script.Answer) string {
	if a.Base64 {
		return base64.StdEncoding.EncodeToString(a.Body)
	}
	return string(a.Body)
}

// tokenTenant reads the token that the balancer has verified and passed on.
func tokenTenant(_ context.Context, r *idemhttp.Request) (string, error) {
	e := r.Source.(*requestALB)
	_, token, _ := strings.Cut(headerOfALB(e, "Authorization"), " ")
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return "", idemhttp.ErrTenantMissing
	}
	raw, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil {
		return "", idemhttp.ErrTenantMissing
	}
	var claims struct{ Tenant string }
	if json.Unmarshal(raw, &claims) != nil || claims.Tenant == "" {
		return "", idemhttp.ErrTenantMissing
	}
	return claims.Tenant, nil
}
