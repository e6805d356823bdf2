// Command function is a function under the HTTP contract, in any flavour and profile. Its
// handler does what the test's script says, see package script.
package main

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"log"
	"maps"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/aws/aws-lambda-go/events"
	"github.com/aws/aws-lambda-go/lambda"
	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/dynamostore"
	"github.com/idem-go/idempotency/idem/idemhttp"
	"github.com/idem-go/idempotency/idem/testenv/contract"
	idemlambda "github.com/idem-go/idempotency/lambda"
	"github.com/idem-go/idempotency/local/proof/contract/internal/script"
	"github.com/idem-go/idempotency/local/proof/faultnet/caller"
)

func main() {
	switch flavour := os.Getenv(script.EnvFlavour); flavour {
	case script.HTTPAPI:
		start(idemlambda.HTTPAPI, idemhttp.Claim("tenant"))
	case script.RESTAPI:
		start(idemlambda.RESTAPI, idemhttp.Claim("tenant"))
	case script.FunctionURL:
		start(idemlambda.FunctionURL, idemhttp.IAMAccount)
	case script.ALB:
		start(idemlambda.ALB, tokenTenant)
	default:
		log.Fatalf("%s is %q", script.EnvFlavour, flavour)
	}
}

// start serves every variant; a request's header chooses one.
func start[E, R any](
	wrap func(*idem.Engine, idemhttp.Routes, idemhttp.TenantFunc, *idemhttp.Options,
		func(context.Context, E) (R, error)) func(context.Context, E) (R, error),
	tenant idemhttp.TenantFunc,
) {
	profile, err := strconv.Atoi(os.Getenv(script.EnvProfile))
	if err != nil {
		log.Fatal(err)
	}
	handler := func(ctx context.Context, e E) (none R, err error) {
		h, err := headersOf(e)
		if err != nil {
			return none, err
		}
		run := func(ctx context.Context) (contract.Answer, error) { return play(ctx, h.get(script.CaseHeader)) }
		if h.get(script.StepHeader) != "" {
			whole := run
			run = func(ctx context.Context) (contract.Answer, error) {
				return idem.Step(ctx, "all", whole, &idem.StepConfig[contract.Answer]{Semantics: idem.AtMostOnce})
			}
		}
		a, err := run(ctx)
		if err != nil {
			return none, err
		}
		return answerTo[R](h.MultiValueHeaders != nil, a)
	}
	served := map[string]func(context.Context, E) (R, error){}
	for name, v := range contract.Variants(idemhttp.Profile(profile)) {
		served[name] = wrap(open(v.MaxResult, v.Wait), contract.Routes(), tenant, &v.Options, handler)
	}
	lambda.Start(func(ctx context.Context, e E) (none R, err error) {
		h, err := headersOf(e)
		if err != nil {
			return none, err
		}
		serve, ok := served[h.get(contract.VariantHeader)]
		if !ok {
			return none, fmt.Errorf("no variant %q", h.get(contract.VariantHeader))
		}
		return serve(ctx, e)
	})
}

// open makes an engine over the table. All processes have one clock: observers need
// no margin to speak of. They also share a small machine with the table: it may be
// slow for a while. The lease is that of a process that takes several invocations.
func open(maxResult int, wait time.Duration) *idem.Engine {
	claims, err := time.ParseDuration(os.Getenv(script.EnvClaimBudget))
	if err != nil {
		log.Fatal(err)
	}
	engine, _, err := caller.Engine(&dynamostore.Options{MaxResult: maxResult, AttemptTimeout: claims / 2}, &idem.Options{
		Observer: idem.LogTo(nil), Lease: 2 * time.Second, Margin: 50 * time.Millisecond,
		ClaimBudget: claims, FinishBudget: claims, Wait: wait,
	})
	if err != nil {
		log.Fatal(err)
	}
	return engine
}

// play tells the test that the handler runs, and does what the test says.
func play(ctx context.Context, name string) (a contract.Answer, err error) {
	at := fmt.Sprintf("%s/%s?pid=%d", os.Getenv(script.EnvControl), url.PathEscape(name), os.Getpid())
	// The script continues after the handler's own time has ended.
	req, err := http.NewRequestWithContext(context.WithoutCancel(ctx), http.MethodGet, at, nil)
	if err != nil {
		return a, err
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return a, err
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return a, fmt.Errorf("the script's server answered %s", res.Status)
	}
	if err := json.NewDecoder(res.Body).Decode(&a); err != nil {
		return a, err
	}
	return a, a.Do(ctx)
}

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
func answerTo[R any](multi bool, a contract.Answer) (out R, err error) {
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
