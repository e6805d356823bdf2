package idemhttp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/internal/canonical"
	"github.com/idem-go/idempotency/idem/memstore"
	"github.com/stretchr/testify/require"
)

func TestKeyHeaderIsConfigurable(t *testing.T) {
	c, n := newContract(t, memory(), func(o *Options) { o.Key = KeyHeader("X-Request-Id") }), 0
	require.Contains(t, string(serve(t, c, payment(), counting(&n, created())).Body), CodeKeyMissing)
	r := payment(func(r *Request) { r.Header = map[string][]string{"x-REQUEST-id": {`"` + testKey + `"`}} })
	for range 2 {
		require.Equal(t, 201, serve(t, c, r, counting(&n, created())).Status)
	}
	require.Equal(t, 1, n)
}

// A producer without headers names its key in the body, under the same rules.
func TestKeyFromTheBody(t *testing.T) {
	const id = "evt_1234567890ABC"
	for name, row := range map[string]struct {
		pointer, body string
		want          string // the key, or a code
	}{
		"field":             {"/id", `{"id":"` + id + `","a":1}`, id},
		"last field":        {"/id", `{"a":{"id":"x"},"b":["id"],"id":"` + id + `"}`, id},
		"nested":            {"/data/object/id", `{"id":1,"data":{"object":{"id":"` + id + `"}}}`, id},
		"element":           {"/a/1", `{"a":[1,"` + id + `"]}`, id},
		"element's field":   {"/Records/0/messageId", `{"Records":[{"messageId":"` + id + `"}]}`, id},
		"escaped name":      {"/a~1b~0c", `{"a/b~c":"` + id + `"}`, id},
		"escapes":           {"/id", `{"\u0069d":"\u0065vt_1234567890ABC"}`, id},
		"no JSON type":      {"/id", `{"id":"` + id + `"}`, id},
		"absent":            {"/id", `{"identity":"` + id + `"}`, string(CodeKeyMissing)},
		"another case":      {"/id", `{"ID":"` + id + `"}`, string(CodeKeyInvalid)},
		"both cases":        {"/id", `{"id":"` + id + `","ID":"another-key-of-the-other"}`, string(CodeKeyInvalid)},
		"both cases, later": {"/id", `{"iD":null,"id":"` + id + `"}`, string(CodeKeyInvalid)},
		"case on the way":   {"/data/id", `{"data":{"id":"` + id + `"},"Data":{}}`, string(CodeKeyInvalid)},
		"folded by Unicode": {"/key", `{"key":"` + id + `","\u212aey":"another-key-of-the-other"}`, string(CodeKeyInvalid)},
		"case elsewhere":    {"/id", `{"a":{"ID":"x"},"id":"` + id + `"}`, id},
		"behind a deep one": {"/b/1/id", `{"b":[{"id":[{"id":0}]},{"a":{"id":1},"id":"` + id + `"},{"id":2}]}`, id},
		"a leading zero":    {"/01", `["a","` + id + `"]`, string(CodeKeyMissing)},
		"deepest":           {"/id", `{"id":"` + id + `","a":` + strings.Repeat("[", canonical.MaxDepth-1) + strings.Repeat("]", canonical.MaxDepth-1) + `}`, id},
		"too deep":          {"/id", `{"id":"` + id + `","a":` + strings.Repeat("[", canonical.MaxDepth) + strings.Repeat("]", canonical.MaxDepth) + `}`, string(CodeNotCanonical)},
		"far too deep":      {"/id", `{"id":"` + id + `","a":` + strings.Repeat("[", 1<<16), string(CodeNotCanonical)},
		"null":              {"/id", `{"id":null}`, string(CodeKeyMissing)},
		"empty body":        {"/id", ``, string(CodeKeyMissing)},
		"blank body":        {"/id", "  \n", string(CodeKeyMissing)},
		"a name, no value":  {"/id/id", `{"id":"id"}`, string(CodeKeyMissing)},
		"another type":      {"/id", `[{"id":"` + id + `"}]`, string(CodeKeyMissing)},
		"scalar":            {"/id", `"` + id + `"`, string(CodeKeyMissing)},
		"empty":             {"/id", `{"id":""}`, string(CodeKeyInvalid)},
		"short":             {"/id", `{"id":"evt_1"}`, string(CodeKeyInvalid)},
		"characters":        {"/id", `{"id":"evt 1234567890 ABC"}`, string(CodeKeyInvalid)},
		"structured":        {"/id", `{"id":"\"` + id + `\""}`, string(CodeKeyInvalid)},
		"integer":           {"/id", `{"id":12345678901234567890}`, "12345678901234567890"},
		"negative integer":  {"/id", `{"id":-12345678901234567890}`, "-12345678901234567890"},
		"short integer":     {"/id", `{"id":42}`, string(CodeKeyInvalid)},
		"fraction":          {"/id", `{"id":1234567890.1234567890}`, string(CodeKeyInvalid)},
		"exponent":          {"/id", `{"id":1234567890123456e1}`, string(CodeKeyInvalid)},
		"bool":              {"/id", `{"id":true}`, string(CodeKeyInvalid)},
		"object":            {"/id", `{"id":{"id":"` + id + `"}}`, string(CodeKeyInvalid)},
		"list":              {"/id", `{"id":["` + id + `"]}`, string(CodeKeyInvalid)},
		"twice":             {"/id", `{"id":"` + id + `","id":"another-key-of-the-other"}`, string(CodeNotCanonical)},
		"twice, elsewhere":  {"/id", `{"id":"` + id + `","a":1,"a":2}`, id},
		"two values":        {"/id", `{"id":"` + id + `"} {"id":"another-key-of-the-other"}`, string(CodeNotCanonical)},
		"cut short":         {"/id", `{"id":"` + id + `"`, string(CodeNotCanonical)},
		"no JSON":           {"/id", `id=` + id, string(CodeNotCanonical)},
		"invalid UTF-8":     {"/id", "{\"id\":\"" + id + "\xff\"}", string(CodeNotCanonical)},
	} {
		t.Run(name, func(t *testing.T) {
			store, n := memory(), 0
			c := newContract(t, store, func(o *Options) { o.Key = KeyPointer(row.pointer) })
			r := payment(func(r *Request) {
				r.Body, r.Header = []byte(row.body), map[string][]string{"idempotency-key": {testKey}}
			})
			if strings.Contains(name, "JSON") {
				r.Header["content-type"] = []string{"text/plain"}
			}
			res := serve(t, c, r, counting(&n, created()))
			if strings.HasPrefix(row.want, "idempotency_key_") || row.want == string(CodeNotCanonical) {
				require.Equal(t, 400, res.Status)
				require.Contains(t, string(res.Body), row.want)
				require.NotContains(t, string(res.Body), "evt")
				require.Zero(t, n)
				return
			}
			require.Equal(t, 201, res.Status)
			rec, err := store.Get(t.Context(), charge.Key("blue", row.want).ID())
			require.NoError(t, err)
			require.Equal(t, row.want, rec.Value)
			require.Equal(t, "true", serve(t, c, r, counting(&n, created())).Headers[HeaderReplayed])
		})
	}
}

// An id that is short, or a number, is one key however it is written and wherever it
// comes from.
func TestShortIDsFromTheBody(t *testing.T) {
	store, n := memory(), 0
	c := newContract(t, store, func(o *Options) { o.Key, o.MinKey = KeyPointer("/id"), 1 })
	send := func(body string) *Response {
		return serve(t, c, payment(func(r *Request) { r.Body = []byte(body) }), counting(&n, created()))
	}
	require.Equal(t, 201, send(`{"id":42}`).Status)
	require.Equal(t, "true", send(`{"id":42}`).Headers[HeaderReplayed])
	require.Equal(t, 422, send(`{"id":"42"}`).Status, "the same key with another body")
	require.Equal(t, 1, n)
	_, err := store.Get(t.Context(), charge.Key("blue", "42").ID())
	require.NoError(t, err)
}

// A function of one's own is held to the limits of every key, and to nothing else.
func TestKeyFromAFunction(t *testing.T) {
	down := errors.New("down")
	for name, row := range map[string]struct {
		key  string
		err  error
		want string // a code, or none
	}{
		"any characters": {key: "ö /#\x00", want: ""},
		"short":          {key: "1", want: ""},
		"longest":        {key: strings.Repeat("k", 1024), want: ""},
		"too long":       {key: strings.Repeat("k", 1025), want: string(CodeKeyInvalid)},
		"empty":          {want: string(CodeKeyMissing)},
		"none":           {err: fmt.Errorf("webhook: %w", ErrNoKey), want: string(CodeKeyMissing)},
		"invalid":        {err: fmt.Errorf("secret: %w", idem.ErrKeyInvalid), want: string(CodeKeyInvalid)},
		"broken":         {err: down},
	} {
		t.Run(name, func(t *testing.T) {
			store, n := memory(), 0
			c := newContract(t, store, func(o *Options) {
				o.Key = KeyFrom(func(_ context.Context, r *Request) (string, error) {
					require.Equal(t, "/payments", r.Route)
					return row.key, row.err
				})
			})
			r := payment(func(r *Request) { r.Header["idempotency-key"] = nil })
			res, err := c.Serve(t.Context(), r, counting(&n, created()))
			if row.err == down {
				require.True(t, err == down)
				require.Zero(t, n)
				return
			}
			require.NoError(t, err)
			if row.want != "" {
				require.Equal(t, 400, res.Status)
				require.Contains(t, string(res.Body), row.want)
				require.NotContains(t, string(res.Body), "secret")
				require.Zero(t, n)
				return
			}
			rec, err := store.Get(t.Context(), charge.Key("blue", row.key).ID())
			require.NoError(t, err)
			require.Equal(t, row.key, rec.Value)
			require.Equal(t, 1, n)
		})
	}
}

func sub(_ context.Context, r *Request) (string, error) { return present(r.Identity.Claims["sub"]) }

func as(tenant, principal string) func(*Request) {
	return func(r *Request) {
		r.Identity.Claims = map[string]string{"tenant": tenant, "sub": principal}
		r.Header["idempotency-key"] = []string{testKey}
	}
}

// Two principals of one tenant with the same key are two records, and no choice of
// names makes them one.
func TestPrincipalsNeverShareARecord(t *testing.T) {
	store := memory()
	c := newContract(t, store, func(o *Options) { o.Principal = sub })
	callers := [][2]string{{"blue", "ann"}, {"blue", "bob"}, {"green", "ann"}, {"blue", "ann/" + testKey}, {"blue", "a/b"}, {"blue", "a%2Fb"}, {"blueann", "x"}, {"blue", "annx"}}
	n := 0
	for _, who := range callers {
		body := strings.Join(who[:], " ")
		for i := range 2 {
			res := serve(t, c, payment(as(who[0], who[1])), func(context.Context) (*Response, error) {
				n++
				return &Response{Status: 200, Body: []byte(body)}, nil
			})
			require.Equal(t, body, string(res.Body))
			require.Equal(t, i == 1, res.Headers[HeaderReplayed] == "true")
		}
		rec, err := store.Get(t.Context(), charge.Key(who[0], idem.JoinValues(who[1], testKey)).ID())
		require.NoError(t, err)
		require.Equal(t, idem.Completed, rec.State, "the record lies under the tenant")
	}
	require.Equal(t, len(callers), n)
}

// Unless bound, principals share their tenant's keys.
func TestPrincipalsShareKeysUnlessBound(t *testing.T) {
	c, n := newContract(t, memory()), 0
	serve(t, c, payment(as("blue", "ann")), counting(&n, created()))
	require.Equal(t, "true", serve(t, c, payment(as("blue", "bob")), counting(&n, created())).Headers[HeaderReplayed])
}

func TestUnusablePrincipal(t *testing.T) {
	broken := errors.New("directory down")
	for name, row := range map[string]struct {
		f    TenantFunc
		code Code
	}{
		"empty":         {func(context.Context, *Request) (string, error) { return "", nil }, CodePrincipalMissing},
		"none":          {func(context.Context, *Request) (string, error) { return "", ErrTenantMissing }, CodePrincipalMissing},
		"no tenant":     {SingleTenant, CodePrincipalMissing},
		"too long":      {func(context.Context, *Request) (string, error) { return strings.Repeat("p", 1024), nil }, CodePrincipalMissing},
		"long with key": {func(context.Context, *Request) (string, error) { return strings.Repeat("p", 1000), nil }, CodeKeyInvalid},
		"broken":        {func(context.Context, *Request) (string, error) { return "", broken }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			c, n := newContract(t, memory(), func(o *Options) { o.Principal = row.f }), 0
			res, err := c.Serve(t.Context(), payment(), counting(&n, created()))
			require.Zero(t, n)
			if row.code == "" {
				require.True(t, err == broken)
				return
			}
			require.NoError(t, err)
			require.Contains(t, string(res.Body), row.code)
		})
	}
	// A tenant that is too long is the tenant's fault, bound or not.
	c, n := newContract(t, memory(), func(o *Options) { o.Principal = sub }), 0
	require.Contains(t, string(serve(t, c, payment(as(strings.Repeat("t", 65), "ann")), counting(&n, created())).Body), CodeTenantMissing)
	require.Zero(t, n)
}

// The longest header key fits beside a principal of any usual length.
func TestLongKeyWithPrincipal(t *testing.T) {
	c, n := newContract(t, memstore.New(), func(o *Options) { o.Principal = sub }), 0
	r := payment(as("blue", "eu-central-1:11112222-3333-4444-5555-666677778888"), func(r *Request) {
		r.Header["idempotency-key"] = []string{strings.Repeat(":", MaxKey)}
	})
	require.Equal(t, 201, serve(t, c, r, counting(&n, created())).Status)
}

// checkBody: no body panics, what is found is what encoding/json finds there, and
// whatever reaches the store matches the grammar.
func checkBody(t testing.TB, body string) (reached bool) {
	store, n := memory(), 0
	c := newContract(t, store, func(o *Options) { o.Key = KeyPointer("/a/id") })
	res := serve(t, c, payment(func(r *Request) { r.Body = []byte(body) }), counting(&n, created()))
	key, no := bodyKey([]byte(body), "/a/id")
	if no == nil {
		var all struct {
			A map[string]any `json:"a"`
		}
		d := json.NewDecoder(strings.NewReader(body))
		d.UseNumber()
		require.NoError(t, d.Decode(&all), body)
		require.Equal(t, fmt.Sprint(all.A["id"]), key)
	}
	if res.Status != 201 {
		require.Equal(t, 400, res.Status)
		require.Zero(t, n)
		return false
	}
	require.Nil(t, no)
	require.Regexp(t, keyGrammar, key)
	rec, err := store.Get(t.Context(), charge.Key("blue", key).ID())
	require.NoError(t, err)
	require.Equal(t, key, rec.Value)
	return true
}

var bodySeeds = []string{
	`{"a":{"id":"` + testKey + `"}}`, `{"b":[1,{"a":null}],"a":{"x":"","id":"` + testKey + `"},"c":true}`,
	`{"a":{"id":null}}`, `{"a":{"id":12345678901234567890}}`, `{"a":["id"]}`, `{"A":{"id":"` + testKey + `"}}`, `{"a":{"i\u0064":"1234567890\u0041BCDEF"}} `, `1`, `"a"`, ``,
}

func FuzzKeyPointer(f *testing.F) {
	for _, body := range bodySeeds {
		f.Add(body)
	}
	f.Fuzz(func(t *testing.T, body string) { checkBody(t, body) })
}

func TestTwentyThousandBodies(t *testing.T) {
	g, reached := newMutator(bodySeeds), 0
	for range 20_000 {
		if checkBody(t, g.next()) {
			reached++
		}
	}
	require.Greater(t, reached, 1000)
	require.Less(t, reached, 19_000)
}
