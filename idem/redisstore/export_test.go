package redisstore

// Tags are those of the groups.
const Tags = tags
