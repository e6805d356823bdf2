package idemhttp

import (
	"maps"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/idem-go/idempotency/idem"
	"github.com/stretchr/testify/require"
)

// trail plays hosts of a service: each answers its requests in the order of its script, such as
// "503 drop 307>other 201". "port" is the host "first" on another port.
type trail struct {
	hosts map[string]*service
	names map[string]string // of keys
	mu    sync.Mutex
	log   []string
}

func newTrail(t *testing.T, scripts map[string]string) *trail {
	tr := &trail{hosts: map[string]*service{}, names: map[string]string{"": "none", testKey: "own"}}
	for host, script := range scripts {
		var answers []http.HandlerFunc
		for _, answer := range strings.Fields(script) {
			answers = append(answers, tr.answer(t, host, answer))
		}
		tr.hosts[host] = serving(t, answers...)
	}
	return tr
}

func (tr *trail) answer(t *testing.T, host, script string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		key := strings.Join(r.Header.Values(DefaultKeyHeader), "+")
		tr.mu.Lock()
		tr.log = append(tr.log, r.Method+" "+host+" "+tr.name(key))
		tr.mu.Unlock()
		if script == "drop" {
			drop(w, r)
			return
		}
		code, to, _ := strings.Cut(script, ">")
		location := to
		if s := tr.hosts[to]; s != nil {
			location = s.URL
		}
		if to == "other" {
			location = strings.Replace(location, "127.0.0.1", "localhost", 1)
		}
		number, err := strconv.Atoi(code)
		require.NoError(t, err)
		status(number, "Location", location)(w, r)
	}
}

// name is A, B, … for the keys that a Transport makes.
func (tr *trail) name(key string) string {
	if tr.names[key] == "" {
		tr.names[key] = string(rune('A' + len(tr.names) - 2))
	}
	return tr.names[key]
}

// A key stays the same for all attempts of a request, and with the host that it was made for, on the whole way of its
// redirects: another host gets a key of its own, or none if the caller has chosen the key, and is then asked once.
func TestWhereAKeyGoes(t *testing.T) {
	withKey := func(r *http.Request) *http.Request { return r.WithContext(WithKey(r.Context(), testKey)) }
	header := func(r *http.Request) *http.Request { r.Header["idempotency-KEY"] = []string{testKey}; return r }
	for name, c := range map[string]struct {
		key                func(*http.Request) *http.Request
		methods            []string
		first, other, port string
		want               string
	}{
		"every attempt": {first: "503 drop 201", want: "POST first A, POST first A, POST first A"},
		"redirects": {first: "503 307>/moved 308>/again 201",
			want: "POST first A, POST first A, POST first A, POST first A"},
		"attempts all in all": {first: "503 307>/moved 503 503",
			want: "POST first A, POST first A, POST first A, POST first A"},
		"a redirect to GET":     {first: "303>/result 503 200", want: "POST first A, GET first none, GET first none"},
		"a method without keys": {key: header, methods: []string{"PATCH"}, first: "503", want: "POST first own"},
		"header":                {key: header, first: "503 201", want: "POST first own, POST first own"},
		"WithKey":               {key: withKey, first: "503 201", want: "POST first own, POST first own"},
		"other port":            {first: "307>port", port: "503 201", want: "POST first A, POST port A, POST port A"},
		"other port, WithKey": {key: withKey, first: "307>port", port: "503 201",
			want: "POST first own, POST port own, POST port own"},
		"other host":          {first: "307>other", other: "503 201", want: "POST first A, POST other B, POST other B"},
		"other host, WithKey": {key: withKey, first: "307>other", other: "503", want: "POST first own, POST other none"},
		"other host, header":  {key: header, first: "307>other", other: "503", want: "POST first own, POST other none"},
		"and back": {first: "502 307>other 307>other 503 201", other: "307>first",
			want: "POST first A, POST first A, POST other B, POST first A, POST other B, POST first A, POST first A"},
		"and back, WithKey": {key: withKey, first: "307>other 200", other: "307>/next 307>first",
			want: "POST first own, POST other none, POST other none, POST first own"},
		"and back, header": {key: header, first: "307>other 200", other: "307>/next 307>first",
			want: "POST first own, POST other none, POST other none, POST first own"},
		"and back as GET": {key: withKey, first: "303>other 200", other: "303>/next 303>first",
			want: "POST first own, GET other none, GET other none, GET first none"},
	} {
		t.Run(name, func(t *testing.T) {
			tr := newTrail(t, map[string]string{"first": c.first, "other": c.other, "port": c.port})
			req := request(t, "POST", tr.hosts["first"].URL, "order")
			if c.key != nil {
				req = c.key(req)
			}
			headers := len(req.Header)
			res, err := newTrial(t, nil, &ClientOptions{MaxAttempts: 3, Methods: c.methods}).Do(req)
			require.NoError(t, err)
			require.NoError(t, res.Body.Close())
			require.Equal(t, c.want, strings.Join(tr.log, ", "))
			if c.methods == nil {
				require.Contains(t, tr.log[len(tr.log)-1], tr.name(KeyOf(res)))
			}
			require.Len(t, req.Header, headers, "the caller's request was changed")
			for _, s := range tr.hosts {
				for _, r := range s.requests() {
					require.Equal(t, r.method == "POST", r.body == "order")
				}
			}
		})
	}
}

func TestIsWithin(t *testing.T) {
	for _, c := range []struct {
		host, other string
		want        bool
	}{
		{"example.com", "example.com", true}, {"API.example.com", "EXAMPLE.com", true},
		{"example.com", "api.example.com", false}, {"badexample.com", "example.com", false}, {"", "example.com", false},
		{"fe80::1%.example.com", "example.com", false},
	} {
		require.Equal(t, c.want, isWithin(c.host, c.other), c)
	}
}

const uuid7Form = `^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`

func TestNewKeysCarryTheirTime(t *testing.T) {
	seen := map[string]bool{}
	for range 1000 {
		k := uuid7(noon)
		require.Regexp(t, uuid7Form, k)
		require.Equal(t, "01a1fdfa4600", strings.ReplaceAll(k, "-", "")[:12]) // noon in milliseconds
		require.False(t, seen[k])
		seen[k] = true
	}
	require.Less(t, uuid7(noon), uuid7(noon.Add(time.Millisecond)))
	require.Regexp(t, uuid7Form, NewKey())
}

// A key in the header may have any form, since the service says what it takes. One in the context may be short.
func TestCallersKeyIsKept(t *testing.T) {
	const own = `"any form: what the service takes"`
	for _, c := range []struct{ name, header, context, want string }{
		{DefaultKeyHeader, own, "", own},
		{DefaultKeyHeader, testKey, testKey, testKey},
		{DefaultKeyHeader, "", "4711", "4711"},
		{"x-request-key", "", testKey, testKey},
	} {
		s := serving(t, status(503), status(200))
		req := request(t, "POST", s.URL, "")
		if c.header != "" {
			req.Header.Set(c.name, c.header)
		}
		if c.context != "" {
			req = req.WithContext(WithKey(req.Context(), c.context))
		}
		res, err := newTrial(t, nil, &ClientOptions{KeyHeader: c.name}).Do(req)
		require.NoError(t, err)
		require.NoError(t, res.Body.Close())
		require.Equal(t, c.want, KeyOf(res))
		require.Len(t, s.requests(), 2)
		for _, r := range s.requests() {
			require.Equal(t, []string{c.want}, r.header.Values(c.name))
		}
	}
}

func TestUnusableKeysAreNotSent(t *testing.T) {
	two := http.Header{DefaultKeyHeader: {testKey, testKey}}
	for name, c := range map[string]struct {
		header http.Header
		key    any
		want   string
	}{
		"two headers":   {two, nil, "2 Idempotency-Key headers"},
		"two spellings": {http.Header{"idempotency-KEY": {testKey}, DefaultKeyHeader: {testKey}}, nil, "2 Idempotency-Key"},
		"empty header":  {http.Header{DefaultKeyHeader: {""}}, nil, "header is empty"},
		"two keys":      {http.Header{DefaultKeyHeader: {testKey}}, testKey + "1", "different keys"},
		"empty":         {nil, "", "empty key"},
		"quotes":        {nil, `"` + testKey + `"`, "without quotes"},
		"grammar":       {nil, "order/4711", "letters, digits"},
		"white space":   {nil, " " + testKey, "white space"},
		"too long":      {nil, strings.Repeat("k", MaxKey+1), "at most 255"},
	} {
		t.Run(name, func(t *testing.T) {
			s := serving(t, status(200))
			body := &watched{Reader: strings.NewReader("order")}
			req, err := http.NewRequestWithContext(t.Context(), "POST", s.URL, body)
			require.NoError(t, err)
			maps.Copy(req.Header, c.header)
			if key, ok := c.key.(string); ok {
				req = req.WithContext(WithKey(req.Context(), key))
			}
			_, err = newTrial(t, nil, nil).Do(req)
			require.ErrorIs(t, err, idem.ErrKeyInvalid)
			require.ErrorContains(t, err, c.want)
			require.Empty(t, s.requests())
			require.True(t, body.closed)
		})
	}
}

func TestKeyOfForeignResponses(t *testing.T) {
	require.Empty(t, KeyOf(nil))
	require.Empty(t, KeyOf(&http.Response{}))
	require.Empty(t, KeyOf(&http.Response{Request: request(t, "POST", "/", "")}))
}

// net/http sends a request once more by itself when a kept connection turns out
// to be closed. That is one attempt of ours, under one key.
func TestOwnResendsOfNetHTTPKeepTheKey(t *testing.T) {
	s := serving(t, status(200), drop, status(201))
	base := &http.Transport{}
	defer base.CloseIdleConnections()
	c := newTrial(t, base, &ClientOptions{MaxAttempts: 1})
	c.do(t, request(t, "POST", s.URL, "first"))
	code, _ := c.do(t, request(t, "POST", s.URL, "second"))
	require.Equal(t, 201, code)
	keys := s.keys()
	require.Len(t, keys, 3)
	require.NotEqual(t, keys[0], keys[1])
	require.Equal(t, keys[1], keys[2])
	require.Equal(t, "second", s.requests()[2].body)
}

func TestAKeyIsNotSentAfterItsTime(t *testing.T) {
	for name, c := range map[string]struct {
		o     *ClientOptions
		reply []string
		want  int
	}{
		// 0, 4, not 12
		"retention":     {&ClientOptions{Retention: 10 * time.Second, Backoff: 4 * time.Second}, nil, 2},
		"up to the end": {&ClientOptions{Retention: 12 * time.Second, Backoff: 4 * time.Second}, nil, 2},   // not at 12
		"one more":      {&ClientOptions{Retention: 12*time.Second + 1, Backoff: 4 * time.Second}, nil, 3}, // not at 22
		"advertised": {&ClientOptions{Backoff: 4 * time.Second},
			[]string{HeaderExpires, "Sat, 01 Jan 2000 00:00:05 GMT"}, 2},
		"advertised later": {&ClientOptions{Retention: time.Second, Backoff: 4 * time.Second},
			[]string{HeaderExpires, "Sat, 01 Jan 2000 00:00:50 GMT"}, 1},
		"advertised, damaged": {&ClientOptions{Backoff: time.Second, MaxAttempts: 3}, []string{HeaderExpires, "tomorrow"}, 3},
	} {
		t.Run(name, func(t *testing.T) {
			// The service's clock is far off.
			first := append([]string{"Date", "Sat, 01 Jan 2000 00:00:00 GMT"}, c.reply...)
			s := serving(t, status(503, first...), status(503))
			code, _ := newTrial(t, nil, c.o).do(t, request(t, "POST", s.URL, "order"))
			require.Equal(t, 503, code)
			require.Len(t, s.requests(), c.want)
		})
	}
}

// Requests that are idempotent by themselves need no window.
func TestALaterCallKnowsTheFirstSending(t *testing.T) {
	s := serving(t, status(503), status(200))
	o := &ClientOptions{Retention: time.Hour, Backoff: time.Minute, MaxBackoff: time.Minute}
	send := func(method string, age time.Duration) error {
		ctx := WithFirstSent(WithKey(t.Context(), testKey), noon.Add(-age))
		res, err := newTrial(t, nil, o).Do(request(t, method, s.URL, "order").WithContext(ctx))
		if err == nil {
			res.Body.Close()
		}
		return err
	}
	err := send("POST", time.Hour)
	require.ErrorIs(t, err, ErrKeyExpired)
	require.ErrorContains(t, err, "2026-11-21T11:00:00Z")
	require.Empty(t, s.requests(), "nothing may be sent")
	require.NoError(t, send("POST", time.Hour-time.Minute))
	require.Len(t, s.requests(), 1, "its second attempt would come too late")
	require.NoError(t, send("POST", time.Minute))
	require.NoError(t, send("PUT", 48*time.Hour))
	require.Len(t, s.requests(), 3)
}

func TestFirstSentHeader(t *testing.T) {
	o := &ClientOptions{FirstSentHeader: "first-sent", Backoff: 1500 * time.Millisecond}
	s := serving(t, status(503), status(307, "Location", "/moved"), status(201), status(200))
	c := newTrial(t, nil, o)
	c.do(t, request(t, "POST", s.URL, "order"))
	req := request(t, "POST", s.URL, "order")
	req.Header.Set("First-Sent", "earlier")
	c.do(t, req)
	c.do(t, request(t, "GET", s.URL, ""))
	ctx := WithFirstSent(t.Context(), noon.Add(-time.Minute).In(time.FixedZone("", 3600)))
	c.do(t, request(t, "POST", s.URL, "order").WithContext(ctx))
	var got []string
	for _, r := range s.requests() {
		got = append(got, strings.Join(r.header.Values("First-Sent"), "+"))
	}
	const first = "2026-11-21T12:00:00.000Z"
	require.Equal(t, []string{first, first, first, "earlier", "", "2026-11-21T11:59:00.000Z"}, got)
	_, err := time.Parse(time.RFC3339, first)
	require.NoError(t, err)
}
