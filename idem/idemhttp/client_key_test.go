package idemhttp

import (
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"

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

// A key stays the same for all attempts of a request, and with the host that it was made for, on
// the whole way of its redirects: another host gets a key of its own, or none if the caller has
// chosen the key, and is then asked once.
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
