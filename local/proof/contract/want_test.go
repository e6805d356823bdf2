package contract

import (
	"cmp"
	"encoding/json"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem/idemhttp"
)

// situation is a row of the contract, restated: the status in either profile, whether
// the request may be sent again, and the bounds of Retry-After in seconds.
type situation struct {
	status, stripe int
	retryable      bool
	least, most    int
}

var situations = map[idemhttp.Code]situation{
	idemhttp.CodeUndeclared:         {500, 500, false, 0, 0},
	idemhttp.CodeTenantMissing:      {403, 403, false, 0, 0},
	idemhttp.CodePrincipalMissing:   {403, 403, false, 0, 0},
	idemhttp.CodeKeyMissing:         {400, 400, false, 0, 0},
	idemhttp.CodeKeyInvalid:         {400, 400, false, 0, 0},
	idemhttp.CodeNotCanonical:       {400, 400, false, 0, 0},
	idemhttp.CodeKeyReused:          {422, 400, false, 0, 0},
	idemhttp.CodeKeyTooOld:          {412, 412, false, 0, 0},
	idemhttp.CodeInProgress:         {409, 409, true, 1, 5},
	idemhttp.CodeNotYetKnown:        {409, 409, true, 1, 600},
	idemhttp.CodeOutcomeUnknown:     {409, 409, false, 0, 0},
	idemhttp.CodeOutcomeUnavailable: {409, 409, false, 0, 0},
	idemhttp.CodeVersionMismatch:    {503, 503, true, 1, 5},
	idemhttp.CodeAccepted:           {202, 202, true, 1, 5},
	idemhttp.CodeRecordUnreadable:   {503, 503, false, 0, 0},
	idemhttp.CodeStoreUnavailable:   {503, 503, true, 1, 1},
	idemhttp.CodeOutOfTime:          {503, 503, true, 1, 1},
}

var markers = map[idemhttp.Profile]string{idemhttp.IETF: "Idempotency-Replayed", idemhttp.Stripe: "Idempotent-Replayed"}

// problem is all that a refusal may hold.
type problem struct {
	Type           string        `json:"type"`
	Title          string        `json:"title"`
	Status         int           `json:"status"`
	Code           idemhttp.Code `json:"code"`
	Retryable      *bool         `json:"retryable"`
	Detail         string        `json:"detail"`
	RecordedStatus int           `json:"recorded_status"`
}

// stripeError is the same in the Stripe profile.
type stripeError struct {
	Error struct {
		Type           string        `json:"type"`
		Code           idemhttp.Code `json:"code"`
		Message        string        `json:"message"`
		Retryable      *bool         `json:"retryable"`
		RecordedStatus int           `json:"recorded_status"`
	} `json:"error"`
}

// code is a refusal's, or empty.
func (r reply) code() idemhttp.Code {
	var p struct {
		problem
		stripeError
	}
	if json.Unmarshal([]byte(r.body), &p) != nil {
		return ""
	}
	return cmp.Or(p.Code, p.Error.Code)
}

// refused holds a reply to a row; it returns the problem.
func (s *service) refused(t *testing.T, got reply, code idemhttp.Code) problem {
	t.Helper()
	want, ok := situations[code]
	require.True(t, ok, code)
	status := want.status
	if s.profile == idemhttp.Stripe {
		status = want.stripe
	}
	require.Equal(t, status, got.status, "%s", got.body)
	var p problem
	var e stripeError
	decoder := json.NewDecoder(strings.NewReader(got.body))
	decoder.DisallowUnknownFields()
	if s.profile == idemhttp.Stripe {
		require.NoError(t, decoder.Decode(&e), "%d %s", got.status, got.body)
		require.Regexp(t, "^(idempotency|invalid_request|api)_error$", e.Error.Type)
		require.Equal(t, []string{strconv.FormatBool(want.retryable)}, got.header.Values("Stripe-Should-Retry"))
		p = problem{Code: e.Error.Code, Detail: e.Error.Message, Retryable: e.Error.Retryable, RecordedStatus: e.Error.RecordedStatus}
	} else {
		require.NoError(t, decoder.Decode(&p), "%d %s", got.status, got.body)
		require.Equal(t, status, p.Status)
		require.Equal(t, "urn:idem-go:problem:"+string(code), p.Type)
		require.NotEmpty(t, p.Title)
	}
	require.Equal(t, code, p.Code, "%s", got.body)
	require.NotEmpty(t, p.Detail)
	require.NotNil(t, p.Retryable)
	require.Equal(t, want.retryable, *p.Retryable)
	media := "application/problem+json"
	if status < 400 || s.profile == idemhttp.Stripe {
		media = "application/json"
	}
	require.Equal(t, []string{media}, got.header.Values("Content-Type"))
	require.Equal(t, []string{"no-store"}, got.header.Values("Cache-Control"))
	after := got.header.Values("Retry-After")
	if want.most == 0 {
		require.Empty(t, after)
	} else {
		require.Len(t, after, 1)
		seconds, err := strconv.Atoi(after[0])
		require.NoError(t, err)
		require.GreaterOrEqual(t, seconds, want.least)
		require.LessOrEqual(t, seconds, want.most)
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
	for _, name := range []string{"Idempotency-Replayed", "Idempotent-Replayed", "Idempotency-Expires", "Idempotency-Original-Date"} {
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
