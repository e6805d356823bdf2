-- KEYS: row, due rows, changes, change: as many as are needed
-- ARGV: version seen, version, data, body, among the due, expiry,
--       change: of its record, of its shard, by expiry, data, expiry
--       how many parts to drop, their fields, fields and values of parts to put
local row = redis.call('HMGET', KEYS[1], 'version', 'data', 'body', 'due')
local version = row[1] or row[2] and '' or '0' -- one that has lost it is not absent
if version ~= ARGV[1] then
	return {version, row[2] or '', row[3] or ''}
end
-- The first command that writes may be refused, such as by a replica or without memory, and then nothing is changed.
-- Those after it are not. That of a row that exists needs no memory, so that attempts end although it is used up.
if row[1] then
	redis.call('PERSIST', KEYS[1])
end
if row[4] and row[4] ~= '' then
	redis.call('ZREM', KEYS[2], row[4])
end
if ARGV[10] ~= '' then
	redis.call('SET', KEYS[4], ARGV[10])
	redis.call('ZADD', KEYS[3], 0, ARGV[7], 0, ARGV[8])
	if ARGV[11] ~= '' then
		redis.call('PEXPIREAT', KEYS[4], ARGV[11])
		redis.call('ZADD', KEYS[3], 0, ARGV[9])
	end
	-- Names of changes that have expired, which the server has removed.
	local now = string.format('(x%012d', redis.call('TIME')[1])
	for _, x in ipairs(redis.call('ZRANGE', KEYS[3], '[x', now, 'BYLEX', 'LIMIT', 0, 8)) do
		local shard, at, id, name = string.match(x, '^x%d+ (%d+) (%d+) (%S+) (.*)$')
		redis.call('ZREM', KEYS[3], x, 's' .. shard .. ' ' .. at .. ' ' .. id .. ' ' .. name, 'r' .. id .. ' ' .. at .. ' ' .. name)
	end
end
if ARGV[2] == '0' then
	redis.call('UNLINK', KEYS[1])
	return {}
end
if ARGV[5] ~= '' then
	redis.call('ZADD', KEYS[2], 0, ARGV[5])
end
local drop = tonumber(ARGV[12])
for i = 13, 12 + drop do
	redis.call('HDEL', KEYS[1], ARGV[i])
end
for i = 13 + drop, #ARGV, 2 do
	redis.call('HSET', KEYS[1], ARGV[i], ARGV[i + 1])
end
redis.call('HSET', KEYS[1], 'version', ARGV[2], 'data', ARGV[3], 'body', ARGV[4], 'due', ARGV[5])
if ARGV[6] ~= '' then
	redis.call('PEXPIREAT', KEYS[1], ARGV[6])
end
return {}
