package idemhttp

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/idem-go/idempotency/idem"
	"github.com/stretchr/testify/require"
)

// keyAfter serves the request twice and returns the key under which it has run once, or the code and the text of
// its refusal, which runs and writes nothing.
func keyAfter(t *testing.T, r *Request, change ...func(*Options)) (key, refusal string) {
	t.Helper()
	store, n := memory(), 0
	c := newContract(t, store, change...)
	res := serve(t, c, r, counting(&n, created()))
	if res.Status == 201 {
		require.Equal(t, "true", serve(t, c, r, counting(&n, created())).Headers[c.opts.Profile.replayedHeader()])
		require.Equal(t, 1, n)
		require.Len(t, store.Records(), 1)
		return store.Records()[0].Value, ""
	}
	require.Zero(t, n)
	require.Empty(t, store.Records())
	p := problemIn(t, res)
	want := map[Code]int{CodeKeyTooOld: 412, CodeKeyMissing: 400, CodeKeyInvalid: 400, CodeNotCanonical: 400}
	require.Equal(t, want[p.Code], res.Status)
	return string(p.Code), string(res.Body)
}

// Where a request's key is, which forms it may have there, and what is refused, in addition to the rows of package
// contract. A refusal does not repeat what was sent.
func TestKeyOfARequest(t *testing.T) {
	const id, other = "evt_1234567890ABC", "another-key-of-the-other"
	missing, invalid, notCanonical := string(CodeKeyMissing), string(CodeKeyInvalid), string(CodeNotCanonical)
	long := strings.Repeat("k", MaxKey)
	type option = func(*Options)
	type change = func(*Request)
	header := func(values ...string) change { return func(r *Request) { r.Header["idempotency-key"] = values } }
	body := func(text string) change { return func(r *Request) { r.Body = []byte(text) } }
	text := func(body string) change {
		return func(r *Request) { r.Header["content-type"], r.Body = []string{"text/plain"}, []byte(body) }
	}
	stripe := func(o *Options) { o.Profile = Stripe }
	named := func(o *Options) { o.Key = KeyHeader("X-Request-Id") }
	pointer := func(at string) option { return func(o *Options) { o.Key = KeyPointer(at) } }
	short := func(o *Options) { o.Key, o.MinKey = KeyPointer("/id"), 1 }
	function := func(key string, err error) option {
		return func(o *Options) {
			o.Key = KeyFrom(func(_ context.Context, r *Request) (string, error) {
				require.Equal(t, "/payments", r.Route)
				return key, err
			})
		}
	}
	for name, row := range map[string]struct {
		options option
		request change
		want    string // the key, or a code
	}{
		"structured":              {nil, header(`"` + testKey + `"`), testKey},
		"white space around":      {nil, header(" \t" + testKey + " "), testKey},
		"white space structured":  {nil, header("\t \"" + testKey + "\"\t"), testKey},
		"all characters":          {nil, header("AZaz09-._~:AZaz09"), "AZaz09-._~:AZaz09"},
		"16":                      {nil, header("1234567890123456"), "1234567890123456"},
		"15":                      {nil, header("123456789012345"), invalid},
		"structured 255":          {nil, header(`"` + long + `"`), long},
		"structured 256":          {nil, header(`"` + long + `k"`), invalid},
		"blank":                   {nil, header("   "), invalid},
		"repeated and structured": {nil, header(`"` + testKey + `", "` + testKey + `"`), invalid},
		"halves, joined":          {nil, header(`"12345678,12345678"`), invalid},
		"flag parameter":          {nil, header(`"` + testKey + `";a`), invalid},
		"open quote":              {nil, header(`"` + testKey), invalid},
		"escape":                  {nil, header(`"1234567890\"123456"`), invalid},
		"bad escape":              {nil, header(`"1234567890\n123456"`), invalid},
		"byte sequence":           {nil, header(":MTIzNDU2Nzg5MDEyMzQ1Ng==:"), invalid},
		"umlaut":                  {nil, header("1234567890123456ä"), invalid},
		"control character":       {nil, header("1234567890123456\x00"), invalid},
		"slash":                   {nil, header("12345678/12345678"), invalid},

		"another header": {named, func(r *Request) { r.Header["x-REQUEST-id"] = []string{`"` + testKey + `"`} }, testKey},
		"not there":      {named, header(testKey), missing},

		// Any printable text is a key of Stripe's and stands for itself, in 1 to 255 characters.
		"Stripe":                    {stripe, header("1"), "1"},
		"Stripe, slash":             {stripe, header("order/1042/capture"), "order/1042/capture"},
		"Stripe, Base64":            {stripe, header("KG5LxwFBepaKHyUD+abc/def=="), "KG5LxwFBepaKHyUD+abc/def=="},
		"Stripe, space":             {stripe, header("order 1042"), "order 1042"},
		"Stripe, quoted":            {stripe, header(`"quoted"`), `"quoted"`},
		"Stripe, blank":             {stripe, header(" "), invalid},
		"Stripe, umlaut":            {stripe, header("ä"), invalid},
		"Stripe, control character": {stripe, header("a\x00b"), invalid},
		"Stripe, tab":               {stripe, header("a\tb"), invalid},
		"Stripe, in two spellings":  {stripe, func(r *Request) { r.Header["Idempotency-Key"] = []string{other} }, invalid},
		"Stripe, short":             {func(o *Options) { o.Profile, o.MinKey = Stripe, 8 }, header("order-1"), invalid},

		// A producer without headers names its key in the body, under the same rules.
		"field":            {pointer("/id"), body(`{"id":"` + id + `","a":1}`), id},
		"nested":           {pointer("/data/object/id"), body(`{"id":1,"data":{"object":{"id":"` + id + `"}}}`), id},
		"no JSON type":     {pointer("/id"), text(`{"id":"` + id + `"}`), id},
		"absent":           {pointer("/id"), body(`{"identity":"` + id + `"}`), missing},
		"both cases":       {pointer("/id"), body(`{"id":"` + id + `","ID":"` + other + `"}`), invalid},
		"null":             {pointer("/id"), body(`{"id":null}`), missing},
		"empty body":       {pointer("/id"), body(``), missing},
		"blank body":       {pointer("/id"), body("  \n"), missing},
		"empty field":      {pointer("/id"), body(`{"id":""}`), invalid},
		"short field":      {pointer("/id"), body(`{"id":"evt_1"}`), invalid},
		"characters":       {pointer("/id"), body(`{"id":"evt 1234567890 ABC"}`), invalid},
		"structured field": {pointer("/id"), body(`{"id":"\"` + id + `\""}`), invalid},
		"integer":          {pointer("/id"), body(`{"id":12345678901234567890}`), "12345678901234567890"},
		"negative integer": {pointer("/id"), body(`{"id":-12345678901234567890}`), "-12345678901234567890"},
		"short integer":    {pointer("/id"), body(`{"id":42}`), invalid},
		"fraction":         {pointer("/id"), body(`{"id":1234567890.1234567890}`), invalid},
		"object":           {pointer("/id"), body(`{"id":{"id":"` + id + `"}}`), invalid},
		"twice":            {pointer("/id"), text(`{"id":"` + id + `","id":"` + other + `"}`), notCanonical},
		"twice, elsewhere": {pointer("/id"), text(`{"id":"` + id + `","a":1,"a":2}`), id},
		"cut short":        {pointer("/id"), body(`{"id":"` + id + `"`), notCanonical},
		"no JSON":          {pointer("/id"), text(`id=` + id), notCanonical},
		"invalid UTF-8":    {pointer("/id"), text("{\"id\":\"" + id + "\xff\"}"), notCanonical},
		"as short as may":  {short, body(`{"id":42}`), "42"},
		"number as text":   {short, body(`{"id":"42"}`), "42"},

		// The longest header key fits next to a principal of any usual length.
		"bound": {func(o *Options) { o.Principal = sub }, func(r *Request) {
			as("blue", "eu-central-1:11112222-3333-4444-5555-666677778888")(r)
			header(strings.Repeat(":", MaxKey))(r)
		}, idem.JoinValues("eu-central-1:11112222-3333-4444-5555-666677778888", strings.Repeat(":", MaxKey))},

		// A function of one's own is held to the limits of every key, and to nothing else.
		"any characters":       {function("ö /#\x00", nil), nil, "ö /#\x00"},
		"a short one":          {function("1", nil), nil, "1"},
		"the longest":          {function(strings.Repeat("k", 1024), nil), nil, strings.Repeat("k", 1024)},
		"too long":             {function(strings.Repeat("k", 1025), nil), nil, invalid},
		"an empty one":         {function("", nil), nil, missing},
		"none":                 {function("", fmt.Errorf("webhook: %w", ErrNoKey)), nil, missing},
		"the function refuses": {function("", fmt.Errorf("secret: %w", idem.ErrKeyInvalid)), nil, invalid},
	} {
		t.Run(name, func(t *testing.T) {
			r := payment()
			var options []func(*Options)
			if row.options != nil {
				options = append(options, row.options)
			}
			if row.request != nil {
				row.request(r)
			}
			key, refused := keyAfter(t, r, options...)
			require.Equal(t, row.want, key)
			for _, sent := range append(r.Header["idempotency-key"], "evt", "secret") {
				if sent = strings.TrimSpace(sent); sent != "" && refused != "" && key != missing {
					require.NotContains(t, refused, sent, "the refusal repeats what was sent")
				}
			}
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

// Two tenants with the same key are two records, and so are two principals of one tenant where keys are bound to them.
// No choice of names makes them one.
func TestTwoTenantsNeverShareARecord(t *testing.T) {
	for _, bound := range []bool{true, false} {
		store, first, n := memory(), map[string]string{}, 0
		c := newContract(t, store, func(o *Options) {
			if bound {
				o.Principal = sub
			}
		})
		for _, who := range [][2]string{{"blue", "ann"}, {"blue", "bob"}, {"green", "ann"}, {"blue", "ann/" + testKey},
			{"blue", "a/b"}, {"blue", "a%2Fb"}, {"blueann", "x"}, {"blue", "annx"}} {
			owner, value := who[0], testKey
			if bound {
				owner, value = strings.Join(who[:], " "), idem.JoinValues(who[1], testKey)
			}
			for range 2 {
				res := serve(t, c, payment(as(who[0], who[1])), func(context.Context) (*Response, error) {
					n++
					return &Response{Status: 200, Body: []byte(who[1])}, nil
				})
				require.Equal(t, first[owner] != "", res.Headers[HeaderReplayed] == "true")
				first[owner] = cmp.Or(first[owner], who[1])
				require.Equal(t, first[owner], string(res.Body))
			}
			rec, err := store.Get(t.Context(), charge.Key(who[0], value).ID())
			require.NoError(t, err)
			require.Equal(t, idem.Completed, rec.State, "the record lies under the tenant")
		}
		require.Len(t, first, n)
	}
}

func TestUnusableTenantAndPrincipal(t *testing.T) {
	broken := errors.New("directory down")
	is := func(name string, err error) TenantFunc {
		return func(context.Context, *Request) (string, error) { return name, err }
	}
	for name, row := range map[string]struct {
		tenant, principal TenantFunc
		code              Code
	}{
		"tenant, empty":            {is("", nil), nil, CodeTenantMissing},
		"tenant, none":             {is("", ErrTenantMissing), nil, CodeTenantMissing},
		"tenant, too long":         {is(strings.Repeat("t", 65), nil), nil, CodeTenantMissing},
		"tenant, too long, bound":  {is(strings.Repeat("t", 65), nil), is("ann", nil), CodeTenantMissing},
		"tenant, broken":           {is("", broken), nil, ""},
		"principal, empty":         {SingleTenant, is("", nil), CodePrincipalMissing},
		"principal, none":          {SingleTenant, is("", ErrTenantMissing), CodePrincipalMissing},
		"principal, no tenant":     {SingleTenant, SingleTenant, CodePrincipalMissing},
		"principal, too long":      {SingleTenant, is(strings.Repeat("p", 1024), nil), CodePrincipalMissing},
		"principal, long with key": {SingleTenant, is(strings.Repeat("p", 1000), nil), CodeKeyInvalid},
		"principal, broken":        {SingleTenant, is("", broken), ""},
	} {
		t.Run(name, func(t *testing.T) {
			c, n := contractOf(t, memory(), row.tenant, func(o *Options) { o.Principal = row.principal }), 0
			res, err := c.Serve(t.Context(), payment(), counting(&n, created()))
			require.Zero(t, n)
			if row.code == "" {
				require.True(t, err == broken)
				return
			}
			require.NoError(t, err)
			require.Equal(t, c.rows[row.code].status, res.Status)
			require.Contains(t, string(res.Body), row.code)
		})
	}
}

// madeUUID7 and madeULID make keys of a time, as RFC 9562 5.7 and the ULID specification lay them out.
func madeUUID7(at time.Time) string {
	ms := fmt.Sprintf("%012x", at.UnixMilli())
	return ms[:8] + "-" + ms[8:] + "-7c3a-9b2d-0123456789ab"
}

func madeULID(at time.Time) string {
	ms, text := at.UnixMilli(), []byte("0123456789ABCDEFGHJKMNPQRS")
	for i := 9; i >= 0; i-- {
		text[i] = crockford[ms&31]
		ms >>= 5
	}
	return string(text)
}

func TestTimeOfAKey(t *testing.T) {
	for key, want := range map[string]string{
		// The examples of RFC 9562 A.6 and of the ULID specification.
		"017F22E2-79B0-7CC3-98C4-DC0C0C07398F": "2022-02-22T19:22:22Z",
		"017f22e2-79b0-7cc3-98c4-dc0c0c07398f": "2022-02-22T19:22:22Z",
		"01ARZ3NDEKTSV4RRFFQ69G5FAV":           "2016-07-30T23:54:10.259Z",
		"01arz3ndektsv4rrffq69g5fav":           "2016-07-30T23:54:10.259Z",
		"00000000000000000000000000":           "", // before there were ULIDs
		"7ZZZZZZZZZZZZZZZZZZZZZZZZZ":           "", // centuries ahead
		"20261123033500000000000001":           "", // a time stamp
		"017F22E2-79B0-4CC3-98C4-DC0C0C07398F": "", // version 4
		"017F22E2-79B0-7CC3-C8C4-DC0C0C07398F": "", // variant
		"017F22E2-79B0-7CC3-98C4-DC0C0C07398G": "",
		"017F22E2.79B0-7CC3-98C4-DC0C0C07398F": "",
		"017F22E279B0-7CC3-98C4-DC0C0C07398F-": "",
		"017F22E279B07CC398C4DC0C0C07398F":     "",
		"81ARZ3NDEKTSV4RRFFQ69G5FAV":           "", // over 128 bits
		"01ARZ3NDEKTSV4RRFFQ69G5FAU":           "", // U is left out of the alphabet
		"01ARZ3NDEKTSV4RRFFQ69G5FA":            "",
		"":                                     "",
	} {
		at, ok := keyTime(key, noon)
		require.Equal(t, want != "", ok, key)
		if ok {
			require.Equal(t, want, at.UTC().Format(time.RFC3339Nano), key)
		}
	}
	at := time.UnixMilli(1795253213417)
	for _, key := range []string{madeUUID7(at), madeULID(at)} {
		got, ok := keyTime(key, noon)
		require.True(t, ok)
		require.True(t, at.Equal(got))
	}
	taken, random := 0, rand.New(rand.NewPCG(1, 2))
	for range 100_000 {
		key := make([]byte, 26)
		for i := range key {
			key[i] = crockford[random.IntN(len(crockford))]
		}
		if _, ok := keyTime(string(key), noon); ok {
			taken++
		}
	}
	require.InDelta(t, 100_000/1_700, taken, 30)
}

// Retention is a day here and the tolerance five minutes, so that a request is
// executed up to 23 h 55 min after it was first sent by its own clock.
func TestMaxAge(t *testing.T) {
	const window = 24*time.Hour - DefaultTolerance
	ran, old, invalid := "", string(CodeKeyTooOld), string(CodeKeyInvalid)
	at := func(make func(time.Time) string, age time.Duration) func(*Request) {
		return func(r *Request) { r.Header["idempotency-key"] = []string{make(noon.Add(-age))} }
	}
	sent := func(values ...string) func(*Request) { return func(r *Request) { r.Header["first-sent"] = values } }
	for name, row := range map[string]struct {
		o      MaxAge
		change func(*Request)
		want   string
	}{
		"UUIDv7, fresh":         {MaxAge{}, at(madeUUID7, 0), ran},
		"UUIDv7, last moment":   {MaxAge{}, at(madeUUID7, window), ran},
		"UUIDv7, old":           {MaxAge{}, at(madeUUID7, window+time.Millisecond), old},
		"UUIDv7, ahead":         {MaxAge{}, at(madeUUID7, -DefaultTolerance), ran},
		"UUIDv7, too far ahead": {MaxAge{}, at(madeUUID7, -DefaultTolerance-time.Millisecond), invalid},
		"ULID, last moment":     {MaxAge{}, at(madeULID, window), ran},
		"ULID, old":             {MaxAge{}, at(madeULID, window+time.Millisecond), old},
		"ULID, too far ahead":   {MaxAge{}, at(madeULID, -time.Hour), invalid},
		"ULID, days ahead":      {MaxAge{}, at(madeULID, -48*time.Hour), invalid},
		"no time":               {MaxAge{}, func(*Request) {}, ran},
		"no time, required":     {MaxAge{Require: true}, func(*Request) {}, invalid},
		"required":              {MaxAge{Require: true}, at(madeUUID7, 0), ran},
		"shorter":               {MaxAge{After: time.Hour}, at(madeUUID7, 55*time.Minute), ran},
		"shorter, old":          {MaxAge{After: time.Hour}, at(madeUUID7, 55*time.Minute+time.Millisecond), old},
		"tolerance":             {MaxAge{Tolerance: time.Hour}, at(madeUUID7, 23*time.Hour), ran},
		"tolerance, old":        {MaxAge{Tolerance: time.Hour}, at(madeUUID7, 23*time.Hour+time.Second), old},
		"tolerance, ahead":      {MaxAge{Tolerance: time.Hour}, at(madeUUID7, -59*time.Minute), ran},
		"header, HTTP date":     {MaxAge{Header: "First-Sent"}, sent("Sat, 21 Nov 2026 11:59:00 GMT"), ran},
		"header, RFC 3339":      {MaxAge{Header: "First-Sent"}, sent(" 2026-11-21T12:59:00+01:00 "), ran},
		"header, old":           {MaxAge{Header: "First-Sent"}, sent("Fri, 20 Nov 2026 12:00:00 GMT"), old},
		"header, ahead":         {MaxAge{Header: "First-Sent"}, sent("2026-11-21T13:00:00Z"), invalid},
		"header, seconds":       {MaxAge{Header: "First-Sent"}, sent("1795253213"), invalid},
		"header, empty":         {MaxAge{Header: "First-Sent"}, sent(""), invalid},
		"header, twice": {MaxAge{Header: "First-Sent"},
			sent("2026-11-21T12:00:00Z", "2026-11-21T12:00:00Z"), invalid},
		"header, joined":         {MaxAge{Header: "First-Sent"}, sent("2026-11-21T12:00:00Z,2026-11-21T12:00:00Z"), invalid},
		"no header":              {MaxAge{Header: "First-Sent"}, func(*Request) {}, ran},
		"no header, required":    {MaxAge{Header: "First-Sent", Require: true}, func(*Request) {}, invalid},
		"header, the key is old": {MaxAge{Header: "First-Sent"}, at(madeUUID7, 48*time.Hour), ran},
	} {
		t.Run(name, func(t *testing.T) {
			r := payment(row.change)
			key, _ := keyAfter(t, r, func(o *Options) { o.MaxAge = &row.o })
			require.Equal(t, cmp.Or(row.want, r.header(DefaultKeyHeader)[0]), key)
		})
	}
}

// A late retry still gets what is recorded, whatever that is; only what would be executed is refused.
func TestMaxAgeLooksFirst(t *testing.T) {
	for name, row := range map[string]struct {
		first *Response
		later time.Duration
		want  string
	}{
		"recorded":      {created(), 23*time.Hour + 59*time.Minute, `"id":"ch_1"`},
		"expired":       {created(), 24*time.Hour + idem.DefaultMargin, string(CodeKeyTooOld)},
		"not executed":  {&Response{Status: 429}, 23*time.Hour + 59*time.Minute, string(CodeKeyTooOld)},
		"unknown":       {&Response{Status: 500}, 48 * time.Hour, string(CodeOutcomeUnknown)},
		"still allowed": {&Response{Status: 429}, 23 * time.Hour, `"id":"ch_2"`},
	} {
		t.Run(name, func(t *testing.T) {
			now, n := noon, 0
			c := contractFor(t, engineAt(t, memory(), &now), AnyRoute(charge), SingleTenant,
				func(o *Options) { o.MaxAge = &MaxAge{} })
			r := payment(func(r *Request) { r.Header["idempotency-key"] = []string{madeUUID7(noon)} })
			serve(t, c, r, counting(&n, row.first))
			now = now.Add(row.later)
			second := serve(t, c, r, counting(&n, &Response{Status: 201, Body: []byte(`{"id":"ch_2"}`)}))
			require.Contains(t, string(second.Body), row.want)
		})
	}
}
