package contract

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"time"

	"github.com/idem-go/idempotency/idem/idemhttp"
)

// Want is what a client gets: a refusal, the handler's failure as the gateway tells it, or the handler's response,
// live or as a replay.
type Want struct {
	Code     idemhttp.Code
	Recorded int // the status of a response that is not returned, as the refusal tells
	Failed   bool
	Replay   bool
}

// Row is a request that is sent, and sent again as it is or changed.
type Row struct {
	Name string
	// Answer is what the handler does each time.
	Answer Answer
	// Send changes the first request, and Again what Send has made of it.
	Send, Again   Change
	First, Second Want
	// InFlight sends the second request while the handler of the first one runs. Once that has its response, a third
	// one, which is the first again, gets the replay.
	InFlight bool
	Runs     int
	// Only is the profile of a row that the other one has otherwise.
	Only []idemhttp.Profile
}

// Made is what most handlers answer.
var Made = Answer{Status: 201, Header: http.Header{"Content-Type": {"text/plain"}, "X-Own": {"made"}},
	Body: []byte("made")}

func answering(status int) Answer {
	a := Made
	if a.Status = status; status == 204 || status == 304 {
		a.Body = nil
	}
	return a
}

// letters cannot be compressed to less than the half.
func letters(n int) []byte {
	r := rand.New(rand.NewPCG(1, 2))
	b := bytes.Repeat([]byte{'a'}, n)
	for i := range b {
		b[i] += byte(r.IntN(26))
	}
	return b
}

// Rows is the table.
func Rows() []Row {
	live, replay := Want{}, Want{Replay: true}
	refusal := func(name string, code idemhttp.Code, send Change) Row {
		w := Want{Code: code}
		return Row{Name: name, Answer: Made, Send: send, First: w, Second: w}
	}
	same := func(name string, send, again Change) Row {
		return Row{Name: name, Answer: Made, Send: send, Again: again, Second: replay, Runs: 1}
	}
	reused := Want{Code: idemhttp.CodeKeyReused, Recorded: 201}
	reuse := func(name string, send, again Change) Row {
		return Row{Name: name, Answer: Made, Send: send, Again: again, Second: reused, Runs: 1}
	}
	twice := func(name string, send, again Change) Row {
		return Row{Name: name, Answer: Made, Send: send, Again: again, Runs: 2}
	}
	end := func(name string, a Answer, to string, first, second Want, runs int) Row {
		return Row{Name: name, Answer: a, Send: Path(to), First: first, Second: second, Runs: runs}
	}
	in := func(only idemhttp.Profile, r Row) Row {
		r.Only = []idemhttp.Profile{only}
		return r
	}
	const ietf, stripe = idemhttp.IETF, idemhttp.Stripe
	key := func(values ...string) Change { return Header("Idempotency-Key", values...) }
	keyOf := func(f func(key string) string) Change { return func(r *Request) { key(f(r.Key()))(r) } }
	const once, often = "/payments", "/transfers"
	failed, unknown := Want{Failed: true}, Want{Code: idemhttp.CodeOutcomeUnknown}
	declined, again := Want{Code: idemhttp.CodeFailed}, Want{Code: idemhttp.CodeUnavailable}
	large := answering(200)
	large.Body = letters(2 * SmallResult)
	marked := Made
	marked.Header = http.Header{"Content-Type": {"text/plain"}, "X-Own": {"made"}, "Idempotency-Replayed": {"spoofed"},
		"Idempotent-Replayed": {"spoofed"}, "Idempotency-Original-Date": {"spoofed"}}
	all := []Row{
		refusal("no operation", idemhttp.CodeUndeclared, Path("/refunds")),
		refusal("no tenant", idemhttp.CodeTenantMissing, Tenant("")),
		refusal("no principal", idemhttp.CodePrincipalMissing, Choose(NoPrincipal)),
		refusal("no key", idemhttp.CodeKeyMissing, key()),
		refusal("no key for PATCH", idemhttp.CodeKeyMissing, both(Method("PATCH"), key())),
		refusal("empty key", idemhttp.CodeKeyInvalid, key("")),
		in(ietf, refusal("empty key in quotes", idemhttp.CodeKeyInvalid, key(`""`))),
		in(ietf, refusal("short key", idemhttp.CodeKeyInvalid, key("short"))),
		refusal("long key", idemhttp.CodeKeyInvalid, key(strings.Repeat("k", 256))),
		in(ietf, refusal("malformed key", idemhttp.CodeKeyInvalid, key("a key with spaces in it"))),
		in(ietf, refusal("key with parameters", idemhttp.CodeKeyInvalid, key(`"0123456789abcdef";v=1`))),
		in(ietf, refusal("keys in one line", idemhttp.CodeKeyInvalid,
			key(strings.Repeat("k", 16)+","+strings.Repeat("k", 16)))),
		in(ietf, refusal(KeySentTwice, idemhttp.CodeKeyInvalid, key(strings.Repeat("a", 16), strings.Repeat("b", 16)))),
		refusal("body cut short", idemhttp.CodeNotCanonical, Body(`{"a":`)),
		refusal("ambiguous body", idemhttp.CodeNotCanonical, Body(`{"a":1,"a":2}`)),
		refusal("number out of range", idemhttp.CodeNotCanonical, Body(`{"a":1e400}`)),
		refusal(NoUTF8, idemhttp.CodeNotCanonical, Body("{\"a\":\"\xff\"}")),
		refusal("too old", idemhttp.CodeKeyTooOld, sent(48*time.Hour)),
		refusal("sent in the future", idemhttp.CodeKeyInvalid, sent(-time.Hour)),
		refusal("too little time", idemhttp.CodeOutOfTime, Path("/slow")),

		same("same", nil, nil),
		same("PATCH", Method("PATCH"), nil),
		same("longest key", keyOf(func(k string) string { return k + strings.Repeat("k", 255-len(k)) }), nil),
		in(stripe, same("a key with spaces, quotes and commas",
			keyOf(func(k string) string { return `{"order": "` + k + `", "n": 1}` }), nil)),
		in(ietf, same("key as a structured field", nil, keyOf(func(k string) string { return `"` + k + `"` }))),
		same("another spelling of the body", nil, Body(`{ "currency" : "EUR", "amount": 4.999e3 }`)),
		// Several gateways take such a type for binary and hand the body over as Base64.
		same("JSON of another type", Header("Content-Type", "application/vnd.pay+json"),
			Body("{ \"currency\" : \"EUR\", \"amount\": 4.999e3 }")),
		same("another order and spelling of parameters", Path("/payments?a=1&b=%2C&a=2"),
			Path("/payments?%62=%2c&a=1&a=2")),
		same("other headers", nil, Header("User-Agent", "another")),
		same("not too old", sent(time.Minute), nil),
		same("too old, but recorded", sent(time.Minute), sent(48*time.Hour)),
		same("path parameter", Path("/payments/7/refunds"), nil),
		same("no body", Body(""), nil),
		same("binary body", binary("\x00\xff\x00"), nil),
		// It is bytes, whatever is in it.
		same("compressed body", both(Header("Content-Encoding", "gzip"), Body("{compressed")), nil),

		reuse("another body", nil, Body(`{"amount":1}`)),
		reuse("a number beyond doubles", Body(`{"amount":9007199254740993}`), Body(`{"amount":9007199254740992}`)),
		reuse("another type", nil, Header("Content-Type", "text/plain")),
		reuse("another parameter", Path("/payments?a=1"), Path("/payments?a=2")),
		reuse("another path parameter", Path("/payments/7/refunds"), Path("/payments/8/refunds")),
		reuse("another binary body", binary("\x00\xff\x00"), binary("\x00\xff\x01")),

		twice("another key", nil, keyOf(func(k string) string { return k + "-2" })),
		twice("another tenant", nil, Tenant("green")),
		twice("another operation", nil, Path("/transfers")),
		twice("method without key", Method("GET"), nil),
		twice("unprotected", Path("/login"), nil),
		twice("unprotected, ambiguous body", both(Path("/login"), Body(`{"a":1,"a":2}`)), Tenant("")),

		{Name: "marks of another service", Answer: marked, Second: replay, Runs: 1},
		{Name: "in flight", Answer: Made, InFlight: true, Second: Want{Code: idemhttp.CodeInProgress}, Runs: 1},
		{Name: "in flight, another body", Answer: Made, InFlight: true, Again: Body(`{"amount":1}`),
			Second: Want{Code: idemhttp.CodeKeyReused}, Runs: 1},
		{Name: "too large to keep", Answer: large, Send: Choose(Small),
			Second: Want{Code: idemhttp.CodeOutcomeUnavailable, Recorded: 200}, Runs: 1},
		{Name: "another response version", Answer: Made, Again: Choose(Version),
			Second: Want{Code: idemhttp.CodeVersionMismatch}, Runs: 1},

		end("error", Answer{Error: "lost"}, once, failed, unknown, 1),
		end("error, repeatable", Answer{Error: "lost"}, often, failed, failed, 2),
		end("permanent error", Answer{Error: "declined", Permanent: true}, once, declined, declined, 1),
		end("error, not executed", Answer{Error: "no connection", NotExecuted: true}, once, again, again, 2),
		end("error, not executed, repeatable", Answer{Error: "no connection", NotExecuted: true}, often, again, again, 2),
		end("panic", Answer{Panic: true}, once, failed, unknown, 1),
		end("panic, repeatable", Answer{Panic: true}, often, failed, failed, 2),
		end("not executed", Answer{Status: 409, Body: []byte("closed"), NotExecuted: true}, once, live, live, 2),
		in(ietf, end("400", answering(400), once, live, replay, 1)),
		in(stripe, end("400", answering(400), once, live, live, 2)),
	}
	for _, status := range []int{200, 201, 204, 303, 402, 404, 409, 422} {
		all = append(all, end(fmt.Sprint(status), answering(status), once, live, replay, 1))
	}
	for _, status := range []int{401, 403, 425, 429} {
		all = append(all, end(fmt.Sprint(status), answering(status), once, live, live, 2))
	}
	for _, status := range []int{408, 500, 503} {
		all = append(all, end(fmt.Sprint(status), answering(status), once, live, unknown, 1),
			end(fmt.Sprint(status, ", repeatable"), answering(status), often, live, live, 2))
	}
	return all
}

// Names of rows that not every gateway can show.
const (
	KeySentTwice = "key sent twice"
	NoUTF8       = "no UTF-8"
)

func both(one, other Change) Change {
	return func(r *Request) {
		one(r)
		other(r)
	}
}

// sent tells that a request was first sent some time ago.
func sent(ago time.Duration) Change {
	return both(Choose(TooOld), func(r *Request) {
		Header(FirstSentHeader, time.Now().Add(-ago).UTC().Format(time.RFC3339))(r)
	})
}

func binary(b string) Change {
	return both(Header("Content-Type", "application/octet-stream"), Body(b))
}
