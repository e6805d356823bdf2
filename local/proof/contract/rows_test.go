package contract

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/idem-go/idempotency/idem/idemhttp"
	"github.com/idem-go/idempotency/local/proof/contract/internal/script"
	"github.com/stretchr/testify/require"
)

// want is what a client gets: a refusal, the function's failure as the gateway tells it,
// or the handler's response, live or as a replay.
type want struct {
	code   idemhttp.Code
	failed bool
	replay bool
	status int // of the handler's response
}

// row is a request that is sent, and sent again as it is or changed.
type row struct {
	name          string
	answer        script.Answer
	send, again   func(*request)
	first, second want
	runs          int
	// unless leaves out a gateway that does not show what the row is about, or a profile
	// that has it otherwise.
	unless func(kind, idemhttp.Profile) bool
}

var made = script.Answer{Status: 201, Header: map[string][]string{"Content-Type": {"text/plain"}, "X-Own": {"made"}},
	Body: []byte("made")}

func answering(status int) script.Answer {
	a := made
	if a.Status = status; status == 204 || status == 304 {
		a.Body = nil
	}
	return a
}

func rows() []row {
	keep := func(*request) {}
	live, replay := want{status: 201}, want{status: 201, replay: true}
	refusal := func(name string, code idemhttp.Code, send func(*request)) row {
		w := want{code: code}
		return row{name: name, answer: made, send: send, again: send, first: w, second: w}
	}
	same := func(name string, send, again func(*request)) row {
		return row{name: name, answer: made, send: send, again: again, first: live, second: replay, runs: 1}
	}
	reuse := func(name string, send, again func(*request)) row {
		return row{name: name, answer: made, send: send, again: again, first: live,
			second: want{code: idemhttp.CodeKeyReused}, runs: 1}
	}
	twice := func(name string, send, again func(*request)) row {
		return row{name: name, answer: made, send: send, again: again, first: live, second: live, runs: 2}
	}
	end := func(name string, a script.Answer, to string, first, second want, runs int) row {
		return row{name: name, answer: a, send: path(to), again: path(to), first: first, second: second, runs: runs}
	}
	in := func(only idemhttp.Profile, r row) row {
		r.unless = func(_ kind, p idemhttp.Profile) bool { return p != only }
		return r
	}
	const once, often = "/payments", "/transfers"
	failed, unknown := want{failed: true}, want{code: idemhttp.CodeOutcomeUnknown}
	all := []row{
		refusal("no operation", idemhttp.CodeUndeclared, path("/refunds")),
		refusal("no tenant", idemhttp.CodeTenantMissing, func(r *request) { r.tenant = "" }),
		refusal("no principal", idemhttp.CodePrincipalMissing, variant(script.VariantPrincipal)),
		refusal("no key", idemhttp.CodeKeyMissing, header("Idempotency-Key")),
		refusal("no key for PATCH", idemhttp.CodeKeyMissing,
			func(r *request) { r.method = "PATCH"; header("Idempotency-Key")(r) }),
		refusal("empty key", idemhttp.CodeKeyInvalid, header("Idempotency-Key", "")),
		in(idemhttp.IETF, refusal("empty key in quotes", idemhttp.CodeKeyInvalid, header("Idempotency-Key", `""`))),
		in(idemhttp.IETF, refusal("short key", idemhttp.CodeKeyInvalid, header("Idempotency-Key", "short"))),
		refusal("long key", idemhttp.CodeKeyInvalid, header("Idempotency-Key", strings.Repeat("k", 256))),
		in(idemhttp.IETF, refusal("malformed key", idemhttp.CodeKeyInvalid,
			header("Idempotency-Key", "a key with spaces in it"))),
		in(idemhttp.IETF, refusal("key with parameters", idemhttp.CodeKeyInvalid,
			header("Idempotency-Key", `"0123456789abcdef";v=1`))),
		in(idemhttp.IETF, refusal("keys in one line", idemhttp.CodeKeyInvalid,
			header("Idempotency-Key", strings.Repeat("k", 16)+","+strings.Repeat("k", 16)))),
		refusal("body cut short", idemhttp.CodeNotCanonical, body(`{"a":`)),
		refusal("ambiguous body", idemhttp.CodeNotCanonical, body(`{"a":1,"a":2}`)),
		refusal("number out of range", idemhttp.CodeNotCanonical, body(`{"a":1e400}`)),
		refusal("too old", idemhttp.CodeKeyTooOld, sent(48*time.Hour)),
		refusal("sent in the future", idemhttp.CodeKeyInvalid, sent(-time.Hour)),
		refusal("too little time", idemhttp.CodeOutOfTime, path("/slow")),

		same("same", keep, keep),
		same("PATCH", method("PATCH"), method("PATCH")),
		same("longest key", func(r *request) {
			header("Idempotency-Key", r.key()+strings.Repeat("k", 255-len(r.key())))(r)
		}, keep),
		in(idemhttp.Stripe, same("a key with spaces, quotes and commas",
			func(r *request) { header("Idempotency-Key", `{"order": "`+r.key()+`", "n": 1}`)(r) }, keep)),
		in(idemhttp.IETF, same("key as a structured field", keep,
			func(r *request) { header("Idempotency-Key", `"`+r.key()+`"`)(r) })),
		same("another spelling of the body", keep, body(`{ "currency" : "EUR", "amount": 4.999e3 }`)),
		// Several gateways take such a type for binary and hand the body over as Base64.
		same("JSON of another type", header("Content-Type", "application/vnd.pay+json"),
			body("{ \"currency\" : \"EUR\", \"amount\": 4.999e3 }")),
		same("another order and spelling of parameters", path("/payments?a=1&b=%2C&a=2"), path("/payments?%62=%2c&a=1&a=2")),
		same("other headers", keep, header("User-Agent", "another")),
		same("not too old", sent(time.Minute), sent(time.Minute)),
		same("too old, but recorded", sent(time.Minute), sent(48*time.Hour)),
		same("path parameter", path("/payments/7/refunds"), path("/payments/7/refunds")),
		same("no body", body(""), body("")),
		same("binary body", binaryBody("\x00\xff\x00"), binaryBody("\x00\xff\x00")),

		reuse("another body", keep, body(`{"amount":1}`)),
		reuse("a number beyond doubles", body(`{"amount":9007199254740993}`), body(`{"amount":9007199254740992}`)),
		reuse("another type", keep, header("Content-Type", "text/plain")),
		reuse("another parameter", path("/payments?a=1"), path("/payments?a=2")),
		reuse("another path parameter", path("/payments/7/refunds"), path("/payments/8/refunds")),
		reuse("another binary body", binaryBody("\x00\xff\x00"), binaryBody("\x00\xff\x01")),

		twice("another key", keep, func(r *request) { header("Idempotency-Key", r.key()+"-2")(r) }),
		twice("another tenant", keep, func(r *request) { r.tenant = "green" }),
		twice("another operation", keep, path("/transfers")),
		twice("method without key", method("GET"), method("GET")),
		twice("unprotected", path("/login"), path("/login")),
		twice("unprotected, ambiguous body", func(r *request) { path("/login")(r); body(`{"a":1,"a":2}`)(r) },
			func(r *request) { r.tenant = "" }),

		end("error", script.Answer{Error: "lost"}, once, failed, unknown, 1),
		end("error, repeatable", script.Answer{Error: "lost"}, often, failed, failed, 2),
		end("permanent error", script.Answer{Error: "declined", Permanent: true}, once, failed, failed, 1),
		end("panic", script.Answer{Panic: true}, once, failed, unknown, 1),
		end("panic, repeatable", script.Answer{Panic: true}, often, failed, failed, 2),
		end("not executed", script.Answer{Status: 409, Body: []byte("closed"), NotExecuted: true}, once, want{status: 409},
			want{status: 409}, 2),
	}
	all = append(all,
		in(idemhttp.IETF, end("400", answering(400), once, want{status: 400}, want{status: 400, replay: true}, 1)),
		in(idemhttp.Stripe, end("400", answering(400), once, want{status: 400}, want{status: 400}, 2)))
	for _, status := range []int{200, 201, 204, 303, 402, 404, 409, 422} {
		all = append(all, end(fmt.Sprint(status), answering(status), once, want{status: status},
			want{status: status, replay: true}, 1))
	}
	for _, status := range []int{401, 403, 425, 429} {
		all = append(all, end(fmt.Sprint(status), answering(status), once, want{status: status}, want{status: status}, 2))
	}
	for _, status := range []int{408, 500, 503} {
		all = append(all,
			end(fmt.Sprint(status), answering(status), once, want{status: status}, unknown, 1),
			end(fmt.Sprint(status, ", repeatable"), answering(status), often, want{status: status}, want{status: status}, 2))
	}
	repeated := refusal("key sent twice", idemhttp.CodeKeyInvalid,
		header("Idempotency-Key", strings.Repeat("a", 16), strings.Repeat("b", 16)))
	// It passes on the last header only.
	repeated.unless = func(k kind, p idemhttp.Profile) bool { return k.name == "ALB" || p == idemhttp.Stripe }
	invalid := refusal("no UTF-8", idemhttp.CodeNotCanonical, body("{\"a\":\"\xff\"}"))
	// It takes JSON for text, in which such bytes are lost before the function.
	invalid.unless = func(k kind, _ idemhttp.Profile) bool { return k.name == "REST API" }
	return append(all, repeated, invalid)
}

// sent tells that a request was first sent some time ago.
func sent(ago time.Duration) func(*request) {
	return func(r *request) {
		variant(script.VariantTooOld)(r)
		header(script.FirstSentHeader, time.Now().Add(-ago).UTC().Format(time.RFC3339))(r)
	}
}

func binaryBody(b string) func(*request) {
	return func(r *request) {
		header("Content-Type", "application/octet-stream")(r)
		r.body = b
	}
}

func (r row) test(t *testing.T, s *service) {
	p := s.always(r.answer)
	base := s.post(p)
	sent := base.with(r.send)
	first := s.send(t, sent)
	r.check(t, s, r.first, reply{}, first)
	// What the second time changes, it changes in the first request.
	second := s.send(t, sent.with(r.again))
	r.check(t, s, r.second, first, second)
	require.Equal(t, r.runs, p.count(), "executions")
}

func (r row) check(t *testing.T, s *service, w want, first, got reply) {
	t.Helper()
	switch {
	case w.failed:
		s.broke(t, got, s.failed)
	case w.code != "":
		s.refused(t, got, w.code)
	case w.replay:
		s.replayed(t, first, got)
	default:
		s.unmarked(t, got)
		require.Equal(t, w.status, got.status, "%s", got.body)
		require.Equal(t, string(r.answer.Body), got.body)
	}
}

// answersFile has what the contract sends for each code in each profile: package idemhttp holds it
// to the contract.
const answersFile = "../../../idem/idemhttp/testdata/answers.jsonl"

// answer is a line of answersFile.
type answer struct {
	Profile   string
	Code      idemhttp.Code
	Status    int
	Type      string // of the body
	Retryable bool
}

// answers are those of a profile.
func answers(t *testing.T, p idemhttp.Profile) map[idemhttp.Code]answer {
	t.Helper()
	text, err := os.ReadFile(answersFile)
	require.NoError(t, err)
	all := map[idemhttp.Code]answer{}
	for line := range strings.Lines(string(text)) {
		var a answer
		require.NoError(t, json.Unmarshal([]byte(line), &a))
		if a.Profile == strings.ToLower(profiles[p]) && a.Code != "" {
			all[a.Code] = a
		}
	}
	require.NotEmpty(t, all)
	return all
}

var profiles = map[idemhttp.Profile]string{idemhttp.IETF: "IETF", idemhttp.Stripe: "Stripe"}

var markers = map[idemhttp.Profile]string{idemhttp.IETF: "Idempotency-Replayed", idemhttp.Stripe: "Idempotent-Replayed"}

// code is a refusal's, or empty.
func (r reply) code() idemhttp.Code {
	var p struct {
		idemhttp.Problem
		idemhttp.StripeError
	}
	if json.Unmarshal([]byte(r.body), &p) != nil {
		return ""
	}
	return cmp.Or(p.Code, p.Error.Code)
}

// refused holds a reply to the answer with a code; it returns the problem.
func (s *service) refused(t *testing.T, got reply, code idemhttp.Code) (p idemhttp.Problem) {
	t.Helper()
	want, ok := s.expected[code]
	require.True(t, ok, code)
	require.Equal(t, want.Status, got.status, "%s", got.body)
	decoder := json.NewDecoder(strings.NewReader(got.body))
	decoder.DisallowUnknownFields()
	if s.profile == idemhttp.Stripe {
		var e idemhttp.StripeError
		require.NoError(t, decoder.Decode(&e), "%d %s", got.status, got.body)
		require.Equal(t, []string{strconv.FormatBool(want.Retryable)}, got.header.Values(idemhttp.HeaderShouldRetry))
		p = idemhttp.Problem{Code: e.Error.Code, Detail: e.Error.Message, Retryable: e.Error.Retryable,
			RecordedStatus: e.Error.RecordedStatus}
	} else {
		require.NoError(t, decoder.Decode(&p), "%d %s", got.status, got.body)
		require.Equal(t, want.Status, p.Status)
	}
	require.Equal(t, code, p.Code, "%s", got.body)
	require.NotEmpty(t, p.Detail)
	require.Equal(t, want.Retryable, p.Retryable)
	require.Equal(t, []string{want.Type}, got.header.Values("Content-Type"))
	require.Equal(t, []string{"no-store"}, got.header.Values("Cache-Control"))
	if after := got.header.Values("Retry-After"); want.Retryable {
		require.Len(t, after, 1)
		require.Regexp(t, "^[1-5]$", after[0])
	} else {
		require.Empty(t, after)
	}
	s.unmarked(t, got)
	for _, secret := range []string{"4999", "made", "blue", "ophelia"} {
		require.NotContains(t, got.body, secret, "a refusal says nothing about a request")
	}
	return p
}

// unmarked holds a reply to not being a replay.
func (s *service) unmarked(t *testing.T, got reply) {
	t.Helper()
	for _, name := range []string{"Idempotency-Replayed", "Idempotent-Replayed", "Idempotency-Expires",
		"Idempotency-Original-Date"} {
		require.Empty(t, got.header.Values(name), name)
	}
}

// replayed holds a reply to being the first one's replay, byte for byte.
func (s *service) replayed(t *testing.T, first, got reply) {
	t.Helper()
	for profile, name := range markers {
		var want []string
		if profile == s.profile {
			want = []string{"true"}
		}
		require.Equal(t, want, got.header.Values(name), "%s of %d %s", name, got.status, got.body)
	}
	recorded, err := http.ParseTime(got.header.Get("Idempotency-Original-Date"))
	require.NoError(t, err)
	expires, err := http.ParseTime(got.header.Get("Idempotency-Expires"))
	require.NoError(t, err)
	require.WithinDuration(t, time.Now(), recorded, patience)
	require.WithinDuration(t, recorded.Add(24*time.Hour), expires, 2*time.Second)
	require.Equal(t, first.status, got.status)
	require.Equal(t, first.body, got.body)
	require.Equal(t, lasting(first), lasting(got))
}

// lasting are the headers that a replay shares with the first response: not what
// belongs to one exchange.
func lasting(r reply) http.Header {
	h := r.header.Clone()
	for _, name := range []string{
		"Date", "Apigw-Requestid", "X-Amzn-Requestid", "Set-Cookie",
		"Idempotency-Replayed", "Idempotent-Replayed", "Idempotency-Expires", "Idempotency-Original-Date",
	} {
		h.Del(name)
	}
	return h
}

// broke holds a reply to being the gateway's own.
func (s *service) broke(t *testing.T, got reply, want own) {
	t.Helper()
	require.Equal(t, want.status, got.status, "%s", got.body)
	require.Contains(t, got.body, want.body)
	s.unmarked(t, got)
}
