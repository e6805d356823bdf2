package idemhttp

import (
	"bytes"
	"fmt"
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
			stored, err := encode(r, neverStored)
			require.NoError(t, err)
			golden(t, "stored/"+strings.ReplaceAll(name, " ", "-"), stored)
			back, err := decode(stored)
			require.NoError(t, err)
			require.Equal(t, r, back)
		})
	}
}

func TestDamagedStoredResponseIsRefused(t *testing.T) {
	good, err := encode(created(), neverStored)
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

func TestOnlyFinalStatusIsEncoded(t *testing.T) {
	for _, status := range []int{-1, 0, 100, 101, 199, 600, 999} {
		_, err := encode(&Response{Status: status}, neverStored)
		require.Error(t, err, status)
	}
}

func TestKeptStatusIsReadable(t *testing.T) {
	r, err := decode(kept(201))
	require.NoError(t, err)
	require.Equal(t, 201, r.Status)
}

// What belongs to one exchange is never stored, in any spelling and in either map.
func TestNeverStored(t *testing.T) {
	r := &Response{
		Status:  200,
		Cookies: []string{"session=secret"},
		Headers: map[string]string{
			"SET-COOKIE": "session=secret", "Www-Authenticate": "secret", "proxy-authenticate": "secret",
			"Authentication-Info": "secret", "Proxy-Authentication-Info": "secret", "authorization": "secret",
			"connection": "x-hop, X-Other", "X-HOP": "secret", "keep-alive": "secret", "TE": "secret",
			"trailer": "secret", "Transfer-Encoding": "secret", "Upgrade": "secret", "Proxy-Connection": "secret",
			"idempotency-replayed": "secret", "Idempotency-Expires": "secret", "X-Kept": "kept",
		},
		MultiHeaders: map[string][]string{
			"Set-Cookie": {"secret", "secret"}, "Connection": {"close", "x-third"}, "x-other": {"secret"},
			"X-Third": {"secret"}, "Authentication-Control": {"secret"}, "Vary": {"kept"},
		},
	}
	stored, err := encode(r, neverStored)
	require.NoError(t, err)
	require.NotContains(t, string(stored), "secret")
	back, err := decode(stored)
	require.NoError(t, err)
	require.Equal(t, map[string]string{"X-Kept": "kept"}, back.Headers)
	require.Equal(t, map[string][]string{"Vary": {"kept"}}, back.MultiHeaders)

	back.addWithheld(r, neverStored)
	require.Equal(t, r.Headers, back.Headers)
	require.Equal(t, r.MultiHeaders, back.MultiHeaders)
	require.Equal(t, r.Cookies, back.Cookies)
}

// FuzzDecode: what is not refused is exactly what encode gives.
func FuzzDecode(f *testing.F) {
	for _, r := range storable() {
		stored, err := encode(r, neverStored)
		require.NoError(f, err)
		f.Add(stored)
		f.Add(stored[:len(stored)/2])
	}
	f.Fuzz(func(t *testing.T, stored []byte) {
		r, err := decode(stored)
		if err != nil {
			require.ErrorIs(t, err, idem.ErrRecordUnreadable)
			return
		}
		_, body, _ := bytes.Cut(stored, []byte("\n"))
		require.Equal(t, body, r.Body)
		again, err := encode(r, neverStored)
		require.NoError(t, err)
		second, err := decode(again)
		require.NoError(t, err)
		require.Equal(t, fmt.Sprint(second), fmt.Sprint(r.withoutExchange()))
	})
}

// withoutExchange is the response as encode sees it.
func (r *Response) withoutExchange() *Response {
	keep, out := r.keeps(neverStored), &Response{Status: r.Status, Body: r.Body, Base64: r.Base64}
	for k, v := range r.Headers {
		if keep(k) {
			out.setHeader(k, v)
		}
	}
	for k, vs := range r.MultiHeaders {
		if keep(k) {
			if out.MultiHeaders == nil {
				out.MultiHeaders = map[string][]string{}
			}
			out.MultiHeaders[k] = vs
		}
	}
	return out
}

// FuzzEncode: every final response reads back byte for byte.
func FuzzEncode(f *testing.F) {
	f.Add(200, "Content-Type", "text/plain", "Vary", "Accept", []byte("x"), false)
	f.Add(599, "X-\xff", "caf\xe9\n", "\"", "\x00", []byte("\n\xff"), true)
	f.Fuzz(func(t *testing.T, status int, name, value, multi, each string, body []byte, b64 bool) {
		r := &Response{
			Status: status, Headers: map[string]string{name: value},
			MultiHeaders: map[string][]string{multi: {each, value}}, Body: body, Base64: b64,
		}
		stored, err := encode(r, neverStored)
		if err != nil {
			require.True(t, status < 200 || status > 599)
			return
		}
		back, err := decode(stored)
		require.NoError(t, err)
		want := r.withoutExchange()
		require.Equal(t, want.Headers, back.Headers)
		require.Equal(t, want.MultiHeaders, back.MultiHeaders)
		require.True(t, bytes.Equal(body, back.Body))
		require.Equal(t, b64, back.Base64)
	})
}
