package main

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"maps"
	"strings"

	"github.com/aws/aws-lambda-go/events"

	"github.com/idem-go/idempotency/idem/idemhttp"
	"github.com/idem-go/idempotency/local/proof/contract/internal/script"
)

// headers are those of an event of any gateway, as far as it has them.
type headers struct {
	Headers           map[string]string
	MultiValueHeaders map[string][]string
}

func headersOf(event any) (h headers, err error) {
	raw, err := json.Marshal(event)
	if err == nil {
		err = json.Unmarshal(raw, &h)
	}
	return h, err
}

func (h headers) get(name string) string {
	for k, v := range h.Headers {
		if strings.EqualFold(k, name) {
			return v
		}
	}
	for k, v := range h.MultiValueHeaders {
		if strings.EqualFold(k, name) && len(v) > 0 {
			return v[0]
		}
	}
	return ""
}

// answerTo makes a gateway's response of an answer. Multi says that the gateway takes several values
// for a name, and cookies as headers.
func answerTo[R any](multi bool, a script.Answer) (out R, err error) {
	body := string(a.Body)
	if a.Base64 {
		body = base64.StdEncoding.EncodeToString(a.Body)
	}
	res := map[string]any{"statusCode": a.Status, "body": body, "isBase64Encoded": a.Base64}
	several := maps.Clone(a.Header)
	if several == nil {
		several = map[string][]string{}
	}
	if multi {
		if len(a.Cookies) > 0 {
			several["Set-Cookie"] = a.Cookies
		}
		res["multiValueHeaders"] = several
	} else {
		single := map[string]string{}
		for name, values := range several {
			single[name] = strings.Join(values, ", ")
		}
		if _, balancer := any(out).(events.ALBTargetGroupResponse); balancer && len(a.Cookies) > 0 {
			single["Set-Cookie"] = a.Cookies[0]
		}
		res["headers"], res["cookies"] = single, a.Cookies
	}
	raw, err := json.Marshal(res)
	if err == nil {
		err = json.Unmarshal(raw, &out)
	}
	return out, err
}

// tokenTenant reads the token that the balancer has verified and passed on.
func tokenTenant(_ context.Context, r *idemhttp.Request) (string, error) {
	h, err := headersOf(r.Source)
	if err != nil {
		return "", err
	}
	_, token, _ := strings.Cut(h.get("Authorization"), " ")
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return "", idemhttp.ErrTenantMissing
	}
	raw, err := base64.RawURLEncoding.DecodeString(parts[1])
	var claims struct{ Tenant string }
	if err != nil || json.Unmarshal(raw, &claims) != nil {
		return "", idemhttp.ErrTenantMissing
	}
	return claims.Tenant, nil
}
