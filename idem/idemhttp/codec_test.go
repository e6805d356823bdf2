package idemhttp

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/idem-go/idempotency/idem"
	"github.com/stretchr/testify/require"
)

func storable() map[string]*Response {
	every := make([]byte, 256)
	for i := range every {
		every[i] = byte(i)
	}
	return map[string]*Response{
		"empty":   {Status: 204, Body: []byte{}},
		"json":    created(),
		"binary":  {Status: 200, Headers: map[string]string{"content-type": "application/octet-stream"}, Body: every},
		"base64":  {Status: 200, Base64: true, Body: []byte("AAEC/w==")},
		"newline": {Status: 200, Body: []byte("\n\n{\"v\":1}\n")},
		"html":    {Status: 404, Headers: map[string]string{"X-Html": `<a href="?a=1&b=2">`}, Body: []byte("<p>&</p>")},
		"multi": {
			Status: 302, Headers: map[string]string{"LOCATION": "/a", "x-one": ""},
			MultiHeaders: map[string][]string{"Vary": {"Accept", "Origin"}, "X-None": {}}, Body: []byte{},
		},
		"bytes in headers": {
			Status: 200, Headers: map[string]string{"X-Latin": "caf\xe9", "X-Utf8": "café", "X-Line": "\u2028", "X-\xff": "a"},
			MultiHeaders: map[string][]string{"X-Many": {"\xff\xfe", "ÿ"}}, Body: []byte{},
		},
	}
}

func TestStoredResponseReadsBackTheSame(t *testing.T) {
	for name, r := range storable() {
		t.Run(name, func(t *testing.T) {
			stored, err := encode(r)
			require.NoError(t, err)
			golden(t, "stored/"+strings.ReplaceAll(name, " ", "-"), stored)
			back, err := decode(stored)
			require.NoError(t, err)
			require.Equal(t, r, back)
		})
	}
}

func TestDamagedStoredResponseIsRefused(t *testing.T) {
	good, err := encode(created())
	require.NoError(t, err)
	line := good[:bytes.IndexByte(good, '\n')]
	for i := range line {
		_, err := decode(line[:i])
		require.ErrorIs(t, err, idem.ErrRecordUnreadable, "cut at %d", i)
	}
	for _, stored := range []string{
		"",
		"\n",
		"{}\n",
		"null\n",
		`{"v":2,"status":200}` + "\n",
		`{"v":0,"status":200}` + "\n",
		`{"v":1,"status":0}` + "\n",
		`{"v":1,"status":199}` + "\n",
		`{"v":1,"status":600}` + "\n",
		`{"v":1,"status":200,"extra":1}` + "\n",
		`{"v":1,"status":200,"status":201}` + "\n",
		`{"status":200,"v":1}` + "\n",
		`{"V":1,"Status":200}` + "\n",
		`{"v":1, "status":200}` + "\n",
		`{"v":1,"status":200,"headers":{}}` + "\n",
		`{"v":1,"status":200,"headers":{"A":1}}` + "\n",
		`{"v":1,"status":200,"headers":{"A":"日"}}` + "\n",
		`{"v":1,"status":200,"multi":{"日":[]}}` + "\n",
		`{"v":1,"status":200,"base64":false}` + "\n",
		`{"v":1,"status":200} {}` + "\n",
		`{"v":1,"status":200}` + "\r\n",
	} {
		_, err := decode([]byte(stored))
		require.ErrorIs(t, err, idem.ErrRecordUnreadable, "%q", stored)
	}
}

// What belongs to one exchange is never stored, in any spelling and in either map. The first caller gets it, but for
// marks of a replay that are not the contract's.
func TestNeverStored(t *testing.T) {
	own := &Response{
		Status: 200, Cookies: []string{"session=secret"}, Body: []byte{},
		Headers: map[string]string{
			"SET-COOKIE": "session=secret", "Www-Authenticate": "secret", "proxy-authenticate": "secret",
			"Authentication-Info": "secret", "Proxy-Authentication-Info": "secret", "authorization": "secret",
			"connection": "x-hop, X-Other", "X-HOP": "secret", "keep-alive": "secret", "TE": "secret",
			"trailer": "secret", "Transfer-Encoding": "secret", "Upgrade": "secret", "Proxy-Connection": "secret",
			"Date": "secret", "age": "secret", "X-Kept": "kept",
		},
		MultiHeaders: map[string][]string{
			"Set-Cookie": {"secret", "secret"}, "Connection": {"close", "x-third"}, "x-other": {"secret"},
			"X-Third": {"secret"}, "Authentication-Control": {"secret"}, "Vary": {"kept"},
		},
	}
	given := own.clone()
	given.Headers["idempotency-replayed"], given.Headers["Idempotency-Expires"] = "secret", "secret"
	given.MultiHeaders["IDEMPOTENT-REPLAYED"] = []string{"secret"}
	given.MultiHeaders["idempotency-Original-Date"] = []string{"secret"}
	stored, err := encode(given)
	require.NoError(t, err)
	require.NotContains(t, string(stored), "secret")
	back, err := decode(stored)
	require.NoError(t, err)
	require.Equal(t, map[string]string{"X-Kept": "kept"}, back.Headers)
	require.Equal(t, map[string][]string{"Vary": {"kept"}}, back.MultiHeaders)

	n := 0
	require.Equal(t, own, serve(t, newContract(t, memory()), payment(), counting(&n, given)))
}

// checkDecode: what is not refused is exactly what encode gives.
func checkDecode(t testing.TB, stored []byte) {
	r, err := decode(stored)
	if err != nil {
		require.ErrorIs(t, err, idem.ErrRecordUnreadable)
		return
	}
	_, body, _ := bytes.Cut(stored, []byte("\n"))
	require.Equal(t, body, r.Body)
	require.Equal(t, string(stored), string(append(r.appendHead(nil, everyHeader), body...)))
	again, err := encode(r)
	require.NoError(t, err)
	second, err := decode(again)
	require.NoError(t, err)
	r.dropHeaders(r.keeps())
	require.Equal(t, string(append(r.appendHead(nil, everyHeader), body...)), string(again))
	require.Equal(t, body, second.Body)
}

func storedSeeds(t testing.TB) (seeds []string) {
	for _, r := range storable() {
		stored, err := encode(r)
		require.NoError(t, err)
		seeds = append(seeds, string(stored))
	}
	slices.Sort(seeds)
	return seeds
}

func FuzzDecode(f *testing.F) {
	for _, stored := range storedSeeds(f) {
		f.Add([]byte(stored))
		f.Add([]byte(stored[:len(stored)/2]))
	}
	f.Fuzz(func(t *testing.T, stored []byte) { checkDecode(t, stored) })
}

// The head is written by hand and is what encoding/json would make of it.
func FuzzHeadIsJSON(f *testing.F) {
	type head struct {
		Version int                 `json:"v"`
		Status  int                 `json:"status"`
		Headers map[string]string   `json:"headers,omitempty"`
		Multi   map[string][]string `json:"multi,omitempty"`
		Base64  bool                `json:"base64,omitempty"`
	}
	f.Add("Content-Type", "text/html; charset=utf-8", "", "", true)
	f.Add("<&>\"\\/", "caf\xe9 ü \u2028", "vary", "\x00\x01\b\f\n\r\t\x1f\x7f\x80\xff", false)
	f.Fuzz(func(t *testing.T, name, value, second, more string, base64 bool) {
		r := &Response{
			Status: 201, Headers: map[string]string{name: value, second: more},
			MultiHeaders: map[string][]string{name: {value, more}, second: {}},
			Base64:       base64, Body: []byte{},
		}
		want := head{1, 201, map[string]string{}, map[string][]string{}, base64}
		for k, v := range r.Headers {
			want.Headers[toLatin1(k)] = toLatin1(v)
		}
		for k, vs := range r.MultiHeaders {
			all := []string{}
			for _, v := range vs {
				all = append(all, toLatin1(v))
			}
			want.Multi[toLatin1(k)] = all
		}
		var line bytes.Buffer
		e := json.NewEncoder(&line)
		e.SetEscapeHTML(false)
		require.NoError(t, e.Encode(want))
		got := r.appendHead(nil, everyHeader)
		require.Equal(t, line.String(), string(got))
		back, err := decode(got)
		require.NoError(t, err)
		require.Equal(t, r, back)
	})
}
