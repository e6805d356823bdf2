// Command function is a function under the HTTP contract, in any flavour and profile. Its
// handler does what the test's script says, see package script.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"time"

	"github.com/aws/aws-lambda-go/lambda"
	"github.com/aws/aws-sdk-go-v2/config"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/dynamostore"
	"github.com/idem-go/idempotency/idem/idemhttp"
	"github.com/idem-go/idempotency/idem/schema"
	idemlambda "github.com/idem-go/idempotency/lambda"
	"github.com/idem-go/idempotency/local/proof/contract/internal/script"
)

var routes = idemhttp.Routes{
	"POST /payments":              {Name: "charge"},
	"PATCH /payments":             {Name: "change"},
	"POST /payments/{id}/refunds": {Name: "refund"},
	"POST /transfers":             {Name: "transfer", Repeat: idem.Repeatable},
	"POST /slow":                  {Name: "slow", MinTime: time.Hour},
}

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
	wrap func(*idem.Engine, idemhttp.Routes, idemhttp.TenantFunc, *idemhttp.Options, func(context.Context, E) (R, error)) func(context.Context, E) (R, error),
	tenant idemhttp.TenantFunc,
) {
	profile, err := strconv.Atoi(os.Getenv(script.EnvProfile))
	if err != nil {
		log.Fatal(err)
	}
	plain, small, waiting := open(0, 0), open(script.SmallResult, 0), open(0, 15*time.Second)
	handler := func(ctx context.Context, e E) (none R, err error) {
		h, err := headersOf(e)
		if err != nil {
			return none, err
		}
		run := func(ctx context.Context) (script.Answer, error) { return play(ctx, h.get(script.CaseHeader)) }
		if h.get(script.VariantHeader) == script.VariantStep {
			whole := run
			run = func(ctx context.Context) (script.Answer, error) {
				return idem.Step(ctx, "all", whole, &idem.StepConfig[script.Answer]{Semantics: idem.AtMostOnce})
			}
		}
		a, err := run(ctx)
		if err != nil {
			return none, err
		}
		return answerTo[R](h.MultiValueHeaders != nil, a)
	}
	served := map[string]func(context.Context, E) (R, error){}
	for name, change := range map[string]func(*idemhttp.Options){
		"":                      func(*idemhttp.Options) {},
		script.VariantStep:      func(*idemhttp.Options) {},
		script.VariantSmall:     func(*idemhttp.Options) {},
		script.VariantPrincipal: func(o *idemhttp.Options) { o.Principal = nobody },
		script.VariantTooOld:    func(o *idemhttp.Options) { o.MaxAge = &idemhttp.MaxAge{Header: script.FirstSentHeader} },
		script.VariantVersion:   func(o *idemhttp.Options) { o.ResponseVersion = 1 },
		script.VariantWait:      func(*idemhttp.Options) {},
	} {
		o := &idemhttp.Options{Profile: idemhttp.Profile(profile)}
		change(o)
		engine := plain
		switch name {
		case script.VariantSmall:
			engine = small
		case script.VariantWait:
			engine = waiting
		}
		served[name] = wrap(engine, routes, tenant, o, handler)
	}
	lambda.Start(func(ctx context.Context, e E) (none R, err error) {
		h, err := headersOf(e)
		if err != nil {
			return none, err
		}
		serve, ok := served[h.get(script.VariantHeader)]
		if !ok {
			return none, fmt.Errorf("no variant %q", h.get(script.VariantHeader))
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
	cfg, err := config.LoadDefaultConfig(context.Background())
	if err != nil {
		log.Fatal(err)
	}
	client, err := dynamostore.NewClient(cfg, &dynamostore.ClientOptions{Endpoint: os.Getenv(schema.EnvEndpoint)})
	if err != nil {
		log.Fatal(err)
	}
	store, err := dynamostore.New(client, os.Getenv(schema.EnvTable), &dynamostore.Options{MaxResult: maxResult, AttemptTimeout: claims / 2})
	if err != nil {
		log.Fatal(err)
	}
	engine, err := idem.New(store, &idem.Options{
		Observer: idem.LogTo(nil), Lease: 2 * time.Second, Margin: 50 * time.Millisecond,
		ClaimBudget: claims, FinishBudget: claims, Wait: wait,
	})
	if err != nil {
		log.Fatal(err)
	}
	return engine
}

func nobody(context.Context, *idemhttp.Request) (string, error) { return "", nil }

// play tells the test that the handler runs, and does what the test says.
func play(ctx context.Context, name string) (a script.Answer, err error) {
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
	switch {
	case a.Panic:
		panic("as the script says")
	case a.Hang:
		select {}
	case a.Permanent:
		return a, idem.Permanent(errors.New(a.Error))
	case a.Error != "":
		return a, errors.New(a.Error)
	case a.NotExecuted:
		idem.SetNotExecuted(ctx)
	}
	return a, nil
}
