package contract

import (
	"cmp"
	"encoding/json"
	"net/http"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem/idemhttp"
)

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
