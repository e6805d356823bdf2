package readme

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-lambda-go/events"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/idemhttp"
	"github.com/idem-go/idempotency/idem/idemtest"
	"github.com/idem-go/idempotency/idem/memstore"
	"github.com/idem-go/idempotency/idem/reconcile"
	idemlambda "github.com/idem-go/idempotency/lambda"
)

// timeout is the function's.
const timeout = 10 * time.Second

var errOfHandler = errors.New("the handler's")

// ends are the ways in which the README says that a handler can end.
var ends = map[string]func(*idemtest.Harness) (Receipt, error){
	"returns a result":                func(*idemtest.Harness) (Receipt, error) { return Receipt{"R-1"}, nil },
	"returns `idem.Permanent(err)`":   fails(idem.Permanent(errOfHandler)),
	"returns `idem.NotExecuted(err)`": fails(idem.NotExecuted(errOfHandler)),
	"returns any other error":         fails(errOfHandler),
	"panics":                          func(*idemtest.Harness) (Receipt, error) { panic(errOfHandler) },
	"still runs at the time-out": func(h *idemtest.Harness) (Receipt, error) {
		time.Sleep(timeout)
		h.Crash()
		return Receipt{}, nil
	},
	"dies with its process": func(h *idemtest.Harness) (Receipt, error) {
		h.Crash()
		return Receipt{}, nil
	},
}

func fails(err error) func(*idemtest.Harness) (Receipt, error) {
	return func(*idemtest.Harness) (Receipt, error) { return Receipt{}, err }
}

var endRow = regexp.MustCompile(`(?m)^\| (.+?) \| (.+?) \| (.+?) \| (.+?) \|$`)

// Each cell of the README's table of errors is what happens.
func TestHowAHandlerEnds(t *testing.T) {
	_, section, found := strings.Cut(read(t, "README.md"), "## My handler returned an error")
	require.True(t, found)
	section, _, _ = strings.Cut(section, "\n## ")
	rows := endRow.FindAllStringSubmatch(section, -1)[1:] // after the title
	require.Len(t, rows, len(ends))
	for _, row := range rows {
		end := ends[row[1]]
		require.NotNil(t, end, row[1])
		for i, repeat := range []idem.Repeat{idem.Repeatable, idem.NotRepeatable} {
			t.Run(row[1]+"/"+repeat.String(), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					caller, next := play(t, idem.Operation{Name: "op", Repeat: repeat}, end)
					require.Equal(t, row[2], caller)
					require.Equal(t, row[3+i], next)
				})
			})
		}
	}
}

// answers are the ways in which the page for HTTP says that a handler can end.
var answers = map[string][]idemlambda.HTTPAPIHandler{
	"answers 200, 201, 402, 404, 409 or 422":       answering(false, 200, 201, 402, 404, 409, 422),
	"calls `idem.SetNotExecuted`, and answers 400": answering(true, 400),
	"calls `idem.SetNotExecuted`, and answers 503": answering(true, 503),
	"answers 500 or 503":                           answering(false, 500, 503),
	"calls `idem.SetNotExecuted`, and returns an error": {func(ctx context.Context, _ httpRequest) (httpResponse, error) {
		idem.SetNotExecuted(ctx)
		return httpResponse{}, errOfHandler
	}},
	"returns `idem.NotExecuted(err)`": failing(idem.NotExecuted(errOfHandler)),
	"returns `idem.Permanent(err)`":   failing(idem.Permanent(errOfHandler)),
	"returns any other error":         failing(errOfHandler),
	"panics": {func(context.Context, httpRequest) (httpResponse, error) {
		panic(errOfHandler)
	}},
}

type (
	httpRequest  = events.APIGatewayV2HTTPRequest
	httpResponse = events.APIGatewayV2HTTPResponse
)

func answering(notExecuted bool, statuses ...int) (all []idemlambda.HTTPAPIHandler) {
	for _, status := range statuses {
		all = append(all, func(ctx context.Context, _ httpRequest) (httpResponse, error) {
			if notExecuted {
				idem.SetNotExecuted(ctx)
			}
			return httpResponse{StatusCode: status, Body: "R-1"}, nil
		})
	}
	return all
}

func failing(err error) []idemlambda.HTTPAPIHandler {
	return []idemlambda.HTTPAPIHandler{func(context.Context, httpRequest) (httpResponse, error) {
		return httpResponse{}, err
	}}
}

// Each cell of that page's table is what happens.
func TestHowAHandlerBehindHTTPEnds(t *testing.T) {
	_, section, found := strings.Cut(read(t, "idem/idemhttp/README.md"), "## For the service: how a handler ends")
	require.True(t, found)
	section, _, _ = strings.Cut(section, "\n## ")
	rows := endRow.FindAllStringSubmatch(section, -1)[1:] // after the title
	require.Len(t, rows, len(answers))
	for _, row := range rows {
		require.NotEmpty(t, answers[row[1]], row[1])
		for _, handler := range answers[row[1]] {
			for i, repeat := range []idem.Repeat{idem.Repeatable, idem.NotRepeatable} {
				client, retry := ask(t, idem.Operation{Name: "op", Repeat: repeat}, handler)
				require.Equal(t, row[2], client, row[1])
				require.Equal(t, row[3+i], retry, row[1])
			}
		}
	}
}

// ask says what a client gets of a handler that ends so, and what its retry gets.
func ask(t *testing.T, op idem.Operation, handler idemlambda.HTTPAPIHandler) (client, retry string) {
	engine, err := idem.New(memstore.New(), nil)
	require.NoError(t, err)
	ran := 0
	function := idemlambda.HTTPAPI(engine, idemhttp.AnyRoute(op), idemhttp.SingleTenant, nil,
		func(ctx context.Context, r httpRequest) (httpResponse, error) {
			if ran++; ran > 1 {
				return httpResponse{StatusCode: 200, Body: "R-2"}, nil
			}
			return handler(ctx, r)
		})
	send := func() (got string) {
		defer func() {
			if recover() != nil {
				got = "the gateway's 500 or 502"
			}
		}()
		var r httpRequest
		r.RequestContext.HTTP.Method, r.Headers = "POST", map[string]string{"idempotency-key": "8e03978e-40d5-43e8-bc93"}
		res, err := function(t.Context(), r)
		var p idemhttp.Problem
		switch {
		case err != nil:
			return "the gateway's 500 or 502"
		case res.Body == "R-1":
			return "that answer"
		case res.Body == "R-2":
			return "runs the handler"
		}
		require.NoError(t, json.Unmarshal([]byte(res.Body), &p))
		return fmt.Sprintf("%d `%s`", res.StatusCode, p.Code)
	}
	return send(), send()
}

// play says what the caller gets of a handler that ends so, and what the next call with its key does.
func play(t *testing.T, op idem.Operation, end func(*idemtest.Harness) (Receipt, error)) (caller, next string) {
	h := idemtest.New(t, nil)
	kill := time.Now().Add(timeout)
	ran := 0
	call := func(kill time.Time) (got idemtest.Delivery[Receipt], panicked any) {
		defer func() { panicked = recover() }()
		return idemtest.Deliver(h, 1, func(ctx context.Context, e *idem.Engine) (Receipt, error) {
			return idem.Do(idem.WithKillTime(ctx, kill), e, op.Key("acme", "1"), 1, func(context.Context, int) (Receipt, error) {
				if ran++; ran > 1 {
					return Receipt{"R-2"}, nil
				}
				return end(h)
			})
		})[0], nil
	}
	switch got, panicked := call(kill); {
	case panicked == errOfHandler:
		caller = "the panic"
	case got.Err == errOfHandler:
		caller = "`err`"
	case errors.Is(got.Err, idemtest.ErrCrashed):
		caller = "nothing"
		h.Restart()
	case got.Err == nil && got.Value.Number == "R-1":
		caller = "the result"
	default:
		caller = got.Err.Error()
	}
	again := func() idemtest.Delivery[Receipt] {
		got, panicked := call(time.Now().Add(timeout))
		require.Nil(t, panicked)
		return got
	}
	got := again()
	if errors.Is(got.Err, idem.ErrInFlight) {
		time.Sleep(time.Until(kill.Add(idem.DefaultMargin)))
		require.ErrorIs(t, again().Err, idem.ErrInFlight)
		time.Sleep(time.Millisecond)
		got, next = again(), "is in flight until 2 s after the time-out, then "
	}
	recorded, failed := errors.AsType[*idem.RecordedError](got.Err)
	switch {
	case ran == 2 && got.Err == nil && got.Value.Number == "R-2":
		next += "runs the handler"
	case ran != 1:
	case got.Replayed && got.Value.Number == "R-1":
		next += "the same result"
	case failed && recorded.Message == errOfHandler.Error():
		next += "the same failure, as a `*RecordedError`"
	case errors.Is(got.Err, idem.ErrOutcomeUnknown):
		next += "runs nothing: `ErrOutcomeUnknown`"
	}
	return caller, next
}

// errNoConnection is the bank's client's error before it has sent anything.
var errNoConnection = errors.New("no connection")

// payer is a bank that takes no key.
type payer struct{ err error }

func (b payer) pay(context.Context, Payment) (Receipt, error) { return Receipt{}, b.err }

var bank payer

func payOut(ctx context.Context, p Payment) (Receipt, error) {
	if p.Cents <= 0 {
		return Receipt{}, idem.Permanent(errors.New("send an amount above zero")) // the same call fails again
	}
	receipt, err := bank.pay(ctx, p)
	if errors.Is(err, errNoConnection) {
		return Receipt{}, idem.NotExecuted(err) // the bank has no request: the next call runs
	}
	return receipt, err // another error: the money may have been sent
}

func TestPayOut(t *testing.T) {
	for want, p := range map[idem.State]struct {
		cents int64
		err   error
	}{
		idem.Completed: {100, nil}, idem.Failed: {0, nil},
		idem.Released: {100, errNoConnection}, idem.Unknown: {100, errors.New("time-out")},
	} {
		h := idemtest.New(t, nil)
		bank = payer{p.err}
		key := idem.Operation{Name: "pay-out"}.Key("acme", "1")
		_, _ = idem.Do(t.Context(), h.Engine, key, Payment{Cents: p.cents}, payOut)
		require.Equal(t, want, h.Record(key).State)
	}
}

// sectionOf is the section of a page, without its title.
func sectionOf(t *testing.T, page, title string) string {
	_, section, found := strings.Cut(read(t, page), "\n## "+title+"\n")
	require.True(t, found)
	section, _, _ = strings.Cut(section, "\n## ")
	return section
}

// The table of the smallest production is what a crash leaves without a sweeper, and what a sweep would have found.
func TestTheSmallestProduction(t *testing.T) {
	repeatable := idem.Operation{Name: "op", Repeat: idem.Repeatable}
	atomic := idem.Operation{Name: "op", Repeat: idem.Repeatable, Mode: idem.Atomic}
	plays := map[string]struct {
		op   idem.Operation
		step bool
	}{
		"`Repeatable`":                          {repeatable, false},
		"`Repeatable`, `Mode: idem.Atomic`":     {atomic, false},
		"`Repeatable`, in an at-most-once step": {repeatable, true},
		"`NotRepeatable`":                       {idem.Operation{Name: "op"}, false},
	}
	rows := endRow.FindAllStringSubmatch(sectionOf(t, "lambda/README.md", "The smallest production"), -1)[1:]
	require.Len(t, rows, len(plays)+1)
	for _, row := range rows {
		play, ok := plays[row[1]]
		if !ok {
			require.Equal(t, "accepted for later", row[1])
			continue
		}
		t.Run(row[1], func(t *testing.T) {
			h := idemtest.New(t, nil)
			key, ran := play.op.Key("acme", "1"), 0
			effect := func(context.Context) (int, error) {
				if ran++; ran == 1 {
					h.Crash()
				}
				return 1, nil
			}
			call := func() error {
				return idemtest.Deliver(h, 1, func(ctx context.Context, e *idem.Engine) (int, error) {
					return idem.Do(ctx, e, key, 1, func(ctx context.Context, _ int) (int, error) {
						if play.step {
							return idem.Step(ctx, "charge", effect, &idem.StepConfig[int]{Semantics: idem.AtMostOnce})
						}
						return effect(ctx)
					})
				})[0].Err
			}
			require.ErrorIs(t, call(), idemtest.ErrCrashed)
			h.Restart()
			h.Clock.Advance(time.Hour)

			left, found := "", listed(t, h)
			switch rec := h.Record(key); {
			case rec == nil:
				left = "there is no record"
			case rec.ExpiresAt.IsZero() && len(found) == 1:
				left = "the record stays; only a sweep reports it"
			case !rec.ExpiresAt.IsZero() && len(found) == 0:
				left = "the record expires; no log line reports it"
			}
			require.Equal(t, row[4], left)

			next, err := "", call()
			switch {
			case err == nil && ran == 2:
				next = "runs the handler"
			case ran == 1:
				require.ErrorIs(t, call(), idem.ErrOutcomeUnknown) // by now, where the handler ran up to the step
				next = "gets `ErrOutcomeUnknown`"
			}
			require.Equal(t, row[3], next)
			require.Equal(t, ran == 1, strings.Contains(row[2], "a sweeper"))
		})
	}
}

// listed are the records that a sweep would find.
func listed(t *testing.T, h *idemtest.Harness) []*idem.Record {
	r, err := reconcile.New(h.Store, &reconcile.Options{Now: h.Clock.Now})
	require.NoError(t, err)
	page, err := r.List(t.Context(), reconcile.Filter{}, "")
	require.NoError(t, err)
	return page.Records
}

// What a reader looks up is what clients and logs show.
func TestWhatIsSeenExists(t *testing.T) {
	// local/proof/modules has the last one, and the one before it is of the AWS SDK.
	known := []string{"missing go.sum entry for module", "not found: ComputePayloadHash"}
	for _, code := range []idemhttp.Code{idemhttp.CodeKeyReused, idemhttp.CodeUndeclared, idemhttp.CodeTenantMissing,
		idemhttp.CodeOutcomeUnknown, idemhttp.CodeInProgress} {
		known = append(known, string(code))
	}
	for _, reason := range []idemlambda.Reason{idemlambda.ReasonKeyReused, idemlambda.ReasonUnknown,
		idemlambda.ReasonInFlight} {
		known = append(known, string(reason))
	}
	var seen []string
	for line := range strings.Lines(sectionOf(t, "lambda/README.md", "When you see this")) {
		if !strings.HasPrefix(line, "| `") {
			continue
		}
		cell := strings.Split(line, "|")[1]
		for _, m := range code.FindAllString(cell, -1) {
			seen = append(seen, strings.Trim(m, "`"))
		}
	}
	require.Len(t, seen, len(known))
	for _, name := range seen {
		require.True(t, slices.Contains(known, name), name)
	}
}
