// Package contracttest runs the table of package contract, and holds answers to it.
package contracttest

import (
	"cmp"
	"encoding/json"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/idemhttp"
	"github.com/idem-go/idempotency/idem/memstore"
	"github.com/idem-go/idempotency/idem/testenv/contract"
)

// Reply is what a client gets.
type Reply struct {
	Status int
	Header http.Header
	Body   string
	// Failed says that the handler's failure came back, as it comes back there.
	Failed bool
}

// Client sends a request.
type Client func(t *testing.T, r contract.Request) Reply

// Play is what the handler does, and how often it did.
type Play struct {
	contract.Answer
	during func() // in the first run

	mu   sync.Mutex
	runs int
}

// Run counts a run and returns what it does.
func (p *Play) Run() contract.Answer {
	p.mu.Lock()
	p.runs++
	first := p.runs == 1
	p.mu.Unlock()
	if first && p.during != nil {
		p.during()
	}
	return p.Answer
}

// Waits reports whether the handler waits for another request.
func (p *Play) Waits() bool { return p.during != nil }

// Run runs a row. Open returns a client of a service whose handler plays the play.
func Run(t *testing.T, profile idemhttp.Profile, r contract.Row, key string, open func(*Play) Client) {
	t.Helper()
	p := &Play{Answer: r.Answer}
	sent := contract.NewRequest(key).With(r.Send)
	again := sent.With(r.Again)
	var first, second Reply
	var send Client
	if r.InFlight {
		arrived, answered := make(chan bool), make(chan bool)
		p.during = func() { arrived <- true; <-answered }
		send = open(p)
		first, second = together(t, send, sent, again, arrived, answered)
	} else {
		send = open(p)
		first = send(t, sent)
		second = send(t, again)
	}
	check(t, profile, r.Answer, r.First, Reply{}, first)
	check(t, profile, r.Answer, r.Second, first, second)
	if r.InFlight {
		Replayed(t, profile, first, send(t, sent))
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	require.Equal(t, r.Runs, p.runs, "executions")
}

// together sends a request, and another one while its handler runs. It sends the first again where no handler has
// run: the store of a busy machine may be too slow.
func together(
	t *testing.T, send Client, sent, again contract.Request, arrived <-chan bool, answered chan<- bool,
) (first, second Reply) {
	t.Helper()
	release := sync.OnceFunc(func() { close(answered) })
	defer release() // also where the second fails
	for try := 0; ; try++ {
		done := make(chan Reply, 1)
		go func() {
			defer close(done)
			done <- send(t, sent)
		}()
		select {
		case <-arrived:
			second = send(t, again)
			release()
			first, answers := <-done
			require.True(t, answers, "the first request got no answer")
			return first, second
		case first, answers := <-done:
			require.True(t, answers, "the first request got no answer")
			if first.Status != http.StatusServiceUnavailable || try == 5 {
				return first, second
			}
		}
	}
}

// InProcess runs the table in this process, in both profiles. Open makes a client of the routes with a handler that
// plays what it is given; leaveOut names rows that cannot be shown there.
func InProcess(t *testing.T, open func(*idem.Engine, *idemhttp.Options, *Play) Client, leaveOut ...string) {
	for profile, name := range Profiles {
		for _, r := range contract.Rows() {
			if r.Only != nil && !slices.Contains(r.Only, profile) || slices.Contains(leaveOut, r.Name) {
				continue
			}
			t.Run(name+"/"+r.Name, func(t *testing.T) {
				store := memstore.New()
				Run(t, profile, r, "the-key-of-this-row", func(p *Play) Client {
					clients := map[string]Client{}
					for name, v := range contract.Variants(profile) {
						var over idem.Store = store
						if v.MaxResult > 0 {
							over = memstore.Options{MaxResult: v.MaxResult}.New()
						}
						engine, err := idem.New(over, &idem.Options{Wait: v.Wait})
						require.NoError(t, err)
						clients[name] = open(engine, &v.Options, p)
					}
					return func(t *testing.T, r contract.Request) Reply {
						return clients[r.Header.Get(contract.VariantHeader)](t, r)
					}
				})
			})
		}
	}
}

// Profiles are all profiles by name.
var Profiles = map[idemhttp.Profile]string{idemhttp.IETF: "IETF", idemhttp.Stripe: "Stripe"}

// Markers are what marks a replay in each profile.
var Markers = map[idemhttp.Profile]string{idemhttp.IETF: "Idempotency-Replayed", idemhttp.Stripe: "Idempotent-Replayed"}

// refusal is what a client gets with a code.
type refusal struct {
	ietf, stripe int
	retryable    bool
}

// refusals are the codes of the table, and those that other tests of the wire need.
var refusals = map[idemhttp.Code]refusal{
	idemhttp.CodeUndeclared:         {500, 500, false},
	idemhttp.CodeTenantMissing:      {403, 403, false},
	idemhttp.CodePrincipalMissing:   {403, 403, false},
	idemhttp.CodeKeyMissing:         {400, 400, false},
	idemhttp.CodeKeyInvalid:         {400, 400, false},
	idemhttp.CodeKeyTooOld:          {412, 412, false},
	idemhttp.CodeNotCanonical:       {400, 400, false},
	idemhttp.CodeKeyReused:          {422, 400, false},
	idemhttp.CodeInProgress:         {409, 409, true},
	idemhttp.CodeOutcomeUnknown:     {409, 409, false},
	idemhttp.CodeOutcomeUnavailable: {409, 409, false},
	idemhttp.CodeVersionMismatch:    {503, 503, true},
	idemhttp.CodeAccepted:           {202, 202, true},
	idemhttp.CodeRecordUnreadable:   {503, 503, false},
	idemhttp.CodeStoreUnavailable:   {503, 503, true},
	idemhttp.CodeOutOfTime:          {503, 503, true},
	idemhttp.CodeFailed:             {500, 500, false},
	idemhttp.CodeUnavailable:        {503, 503, true},
}

// CodeOf is a refusal's code, or empty.
func CodeOf(got Reply) idemhttp.Code {
	var p struct {
		idemhttp.Problem
		idemhttp.StripeError
	}
	if json.Unmarshal([]byte(got.Body), &p) != nil {
		return ""
	}
	return cmp.Or(p.Code, p.Error.Code)
}

func check(t *testing.T, profile idemhttp.Profile, a contract.Answer, w contract.Want, first, got Reply) {
	t.Helper()
	require.Equal(t, w.Failed, got.Failed, "%d %s", got.Status, got.Body)
	switch {
	case w.Failed:
		Unmarked(t, got)
	case w.Code != "":
		require.Equal(t, w.Recorded, Refused(t, profile, got, w.Code).RecordedStatus, got.Body)
	case w.Replay:
		Replayed(t, profile, first, got)
	default:
		Unmarked(t, got)
		require.Equal(t, a.Status, got.Status, "%s", got.Body)
		require.Equal(t, string(a.Body), got.Body)
		require.Equal(t, a.Header.Get("X-Own"), got.Header.Get("X-Own"))
	}
}

// Refused holds a reply to the refusal with a code, and returns the problem.
func Refused(t *testing.T, profile idemhttp.Profile, got Reply, code idemhttp.Code) (p idemhttp.Problem) {
	t.Helper()
	want, ok := refusals[code]
	require.True(t, ok, code)
	status, contentType := want.ietf, idemhttp.ProblemMediaType
	if profile == idemhttp.Stripe {
		status = want.stripe
	}
	if profile == idemhttp.Stripe || status < 400 {
		contentType = "application/json"
	}
	require.Equal(t, status, got.Status, "%s", got.Body)
	decoder := json.NewDecoder(strings.NewReader(got.Body))
	decoder.DisallowUnknownFields()
	if profile == idemhttp.Stripe {
		var e idemhttp.StripeError
		require.NoError(t, decoder.Decode(&e), "%d %s", got.Status, got.Body)
		require.Contains(t, []string{"idempotency_error", "invalid_request_error", "api_error"}, e.Error.Type)
		require.Equal(t, []string{strconv.FormatBool(want.retryable)}, got.Header.Values(idemhttp.HeaderShouldRetry))
		p = idemhttp.Problem{Code: e.Error.Code, Detail: e.Error.Message, Retryable: e.Error.Retryable,
			RecordedStatus: e.Error.RecordedStatus}
	} else {
		require.NoError(t, decoder.Decode(&p), "%d %s", got.Status, got.Body)
		require.Equal(t, status, p.Status)
		require.Equal(t, "urn:idem-go:problem:"+string(code), p.Type)
	}
	require.Equal(t, code, p.Code, "%s", got.Body)
	require.NotEmpty(t, p.Detail)
	require.Equal(t, want.retryable, p.Retryable)
	require.Equal(t, []string{contentType}, got.Header.Values("Content-Type"))
	require.Equal(t, []string{"no-store"}, got.Header.Values("Cache-Control"))
	if after := got.Header.Values("Retry-After"); want.retryable {
		require.Len(t, after, 1)
		require.Regexp(t, "^[1-5]$", after[0])
	} else {
		require.Empty(t, after)
	}
	Unmarked(t, got)
	for _, secret := range []string{"4999", "made", "blue", "ophelia", "the-key-of"} {
		require.NotContains(t, got.Body, secret, "a refusal says nothing about a request")
	}
	return p
}

// Unmarked holds a reply to not being a replay.
func Unmarked(t *testing.T, got Reply) {
	t.Helper()
	for _, name := range marks {
		require.Empty(t, got.Header.Values(name), name)
	}
}

var marks = []string{"Idempotency-Replayed", "Idempotent-Replayed", "Idempotency-Expires", "Idempotency-Original-Date"}

// Replayed holds a reply to being the first one's replay, byte for byte.
func Replayed(t *testing.T, profile idemhttp.Profile, first, got Reply) {
	t.Helper()
	for of, name := range Markers {
		var want []string
		if of == profile {
			want = []string{"true"}
		}
		require.Equal(t, want, got.Header.Values(name), "%s of %d %s", name, got.Status, got.Body)
	}
	recorded, err := http.ParseTime(got.Header.Get("Idempotency-Original-Date"))
	require.NoError(t, err)
	expires, err := http.ParseTime(got.Header.Get("Idempotency-Expires"))
	require.NoError(t, err)
	require.WithinDuration(t, time.Now(), recorded, 5*time.Minute)
	require.WithinDuration(t, recorded.Add(24*time.Hour), expires, 2*time.Second)
	require.Equal(t, first.Status, got.Status)
	require.Equal(t, first.Body, got.Body)
	require.Equal(t, lasting(first), lasting(got))
}

// lasting are the headers that a replay shares with the first response: not what belongs to one exchange.
func lasting(r Reply) http.Header {
	h := r.Header.Clone()
	for _, name := range append([]string{"Date", "Apigw-Requestid", "X-Amzn-Requestid", "Set-Cookie"}, marks...) {
		h.Del(name)
	}
	return h
}
