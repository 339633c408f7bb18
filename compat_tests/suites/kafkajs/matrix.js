// kafkajs' program of checks: matrix.js SERVERS FEATURE..., one line of JSON for each feature, as
// compat_tests/suites/checks.py says.

const { readFileSync } = require('node:fs')
const assert = require('node:assert').strict
const { randomUUID } = require('node:crypto')
const { CompressionTypes, CompressionCodecs, ConfigResourceTypes, Kafka, logLevel } = require('kafkajs')
const { AssignerProtocol, PartitionAssigners } = require('kafkajs')

const [servers, ...features] = process.argv.slice(2)
const T0 = 1600000000000
const WAIT_MS = 40000

class Refused extends Error {}

const connect = config => new Kafka({
  brokers: [servers],
  logLevel: logLevel.NOTHING,
  retry: { retries: 5, initialRetryTime: 100 },
  ...config,
})
let kafka = connect()

const fresh = kind => `${kind}-${randomUUID()}`
const numbers = (from, to) => Array.from({ length: to - from }, (_, n) => `${from + n}`)
const sleep = ms => new Promise(resolve => setTimeout(resolve, ms))

async function until(condition, what) {
  const deadline = Date.now() + WAIT_MS
  while (!(await condition())) {
    if (Date.now() > deadline) throw new Error(`waited ${WAIT_MS} ms: ${what}`)
    await sleep(50)
  }
}

async function withAdmin(use) {
  const admin = kafka.admin()
  await admin.connect()
  try {
    return await use(admin)
  } finally {
    await admin.disconnect()
  }
}

async function create(numPartitions = 1) {
  const topic = fresh('kafkajs')
  await withAdmin(admin => admin.createTopics({ topics: [{ topic, numPartitions }], waitForLeaders: true }))
  return topic
}

async function send(topic, messages, { acks = -1, compression, ...config } = {}) {
  const producer = kafka.producer(config)
  await producer.connect()
  try {
    return await producer.send({ topic, messages, acks, compression })
  } finally {
    await producer.disconnect()
  }
}

const counted = count => numbers(0, count).map((value, n) => ({ value, timestamp: `${T0 + 1000 * n}` }))

// A member of a group that keeps what it reads; kafkajs knows no consumer without a group.
class Member {
  constructor(topic, groupId, config = {}, run = {}) {
    this.messages = []
    this.assigned = []
    this.consumer = kafka.consumer({
      groupId,
      sessionTimeout: 6000,
      heartbeatInterval: 200,
      metadataMaxAge: 1000,
      maxWaitTimeInMs: 200,
      ...config,
    })
    this.consumer.on(this.consumer.events.GROUP_JOIN, ({ payload }) => {
      this.assigned = payload.memberAssignment[topic] || []
    })
    this.topic = topic
    this.options = run
  }

  async start(fromBeginning = true) {
    await this.consumer.connect()
    await this.consumer.subscribe({ topics: [this.options.pattern || this.topic], fromBeginning })
    await this.consumer.run({
      autoCommit: this.options.autoCommit !== false,
      eachMessage: async ({ partition, message }) => {
        this.messages.push({ partition, ...message })
      },
    })
    return this
  }

  async read(count) {
    await until(() => this.messages.length >= count, `${count} messages`)
    return this.messages.map(message => message.value && message.value.toString())
  }
}

async function readAll(topic, count) {
  const member = await new Member(topic, fresh('group')).start()
  try {
    await member.read(count)
    return member.messages
  } finally {
    await member.consumer.disconnect()
  }
}

const valuesOf = messages => messages.map(message => message.value && message.value.toString())

async function withMember(topic, use, groupId = fresh('group'), run = {}) {
  const member = await new Member(topic, groupId, {}, run).start()
  try {
    return await use(member)
  } finally {
    await member.consumer.disconnect()
  }
}

// ---- records

async function acks() {
  const topic = await create()
  for (const level of [0, 1, -1]) await send(topic, counted(10), { acks: level })
  assert.deepEqual(valuesOf(await readAll(topic, 30)), [...numbers(0, 10), ...numbers(0, 10), ...numbers(0, 10)])
}

async function gzip() {
  const topic = await create()
  await send(topic, counted(100), { compression: CompressionTypes.GZIP })
  assert.deepEqual(valuesOf(await readAll(topic, 100)), numbers(0, 100))
}

async function records() {
  const topic = await create()
  await send(topic, [
    { key: 'key', value: 'value', headers: { trace: ['1', '2'] }, timestamp: `${T0}` },
    { value: 'no key', timestamp: `${T0 + 1}` },
    { key: 'tombstone', value: null, timestamp: `${T0 + 2}` },
    { key: '', value: '', timestamp: `${T0 + 3}` },
  ])
  const got = await readAll(topic, 4)
  assert.deepEqual(valuesOf(got), ['value', 'no key', null, ''])
  assert.deepEqual(got.map(each => each.key && each.key.toString()), ['key', null, 'tombstone', ''])
  assert.deepEqual(got[0].headers.trace.map(String), ['1', '2'])
  assert.deepEqual(got.map(each => each.timestamp), [0, 1, 2, 3].map(n => `${T0 + n}`))
}

async function idempotent() {
  const topic = await create()
  await send(topic, counted(200), { idempotent: true, maxInFlightRequests: 1 })
  assert.deepEqual(valuesOf(await readAll(topic, 200)), numbers(0, 200))
}

async function subscribe() {
  const topic = await create()
  await send(topic, counted(10))
  const pattern = new RegExp(`^${topic.slice(0, -1)}.$`)
  await withMember(topic, async member => assert.deepEqual(await member.read(10), numbers(0, 10)), undefined, { pattern })
}

async function seek() {
  const topic = await create()
  await send(topic, counted(10))
  await withMember(topic, async member => {
    await member.read(10)
    // -2 is the beginning, and -1 the end.
    for (const [offset, wanted] of [['7', numbers(7, 10)], ['-2', numbers(0, 10)]]) {
      member.messages = []
      member.consumer.seek({ topic, partition: 0, offset })
      assert.deepEqual(await member.read(wanted.length), wanted)
    }
    member.consumer.seek({ topic, partition: 0, offset: '-1' })
    await sleep(1000)
    member.messages = []
    await send(topic, [{ value: 'after the end' }])
    assert.deepEqual(await member.read(1), ['after the end'])
  })
}

async function times() {
  const topic = await create()
  await send(topic, counted(10))
  await withAdmin(async admin => {
    const found = await admin.fetchTopicOffsetsByTimestamp(topic, T0 + 2500)
    assert.deepEqual(found, [{ partition: 0, offset: '3' }])
    const [ends] = await admin.fetchTopicOffsets(topic)
    assert.deepEqual([ends.low, ends.high], ['0', '10'])
  })
}

async function pause() {
  const topic = await create()
  await send(topic, counted(10))
  await withMember(topic, async member => {
    await member.read(10)
    member.consumer.pause([{ topic }])
    await send(topic, [{ value: '10' }])
    await sleep(1000)
    assert.equal(member.messages.length, 10)
    member.consumer.resume([{ topic }])
    await member.read(11)
  })
}

// ---- groups

async function group() {
  const topic = await create(4)
  const groupId = fresh('group')
  const config = { partitionAssigners: [PartitionAssigners.roundRobin] }
  const first = await new Member(topic, groupId, config).start()
  await until(() => first.assigned.length === 4, 'one member has all partitions')
  const second = await new Member(topic, groupId, config).start()
  await until(() => first.assigned.length === 2 && second.assigned.length === 2, 'two share them')
  assert.deepEqual([...first.assigned, ...second.assigned].sort(), [0, 1, 2, 3])
  await send(topic, numbers(0, 40).map((value, n) => ({ value, partition: n % 4 })))
  await until(() => first.messages.length + second.messages.length >= 40, 'all messages')
  await second.consumer.disconnect()
  await until(() => first.assigned.length === 4, 'the first has all partitions again')
  await first.consumer.disconnect()
  const values = valuesOf([...first.messages, ...second.messages])
  assert.deepEqual(values.map(Number).sort((a, b) => a - b), numbers(0, 40).map(Number))
}

async function commit() {
  const topic = await create()
  const groupId = fresh('group')
  await send(topic, counted(10))
  await withMember(topic, async member => {
    await member.read(10)
    await member.consumer.commitOffsets([{ topic, partition: 0, offset: '4', metadata: 'four' }])
  }, groupId, { autoCommit: false })
  await withAdmin(async admin => {
    const [offsets] = await admin.fetchOffsets({ groupId, topics: [topic] })
    assert.deepEqual(offsets.partitions, [{ partition: 0, offset: '4', metadata: 'four' }])
  })
  await withMember(topic, async member => assert.equal((await member.read(6))[0], '4'), groupId)
}

async function reset() {
  const topic = await create()
  const groupId = fresh('group')
  await send(topic, counted(10))
  await withAdmin(async admin => {
    const partitions = [{ partition: 0, offset: '1000' }]
    await admin.setOffsets({ groupId, topic, partitions })
  })
  await withMember(topic, async member => assert.equal((await member.read(10))[0], '0'), groupId)
  const late = await new Member(topic, fresh('group')).start(false)
  await until(() => late.assigned.length === 1, 'the member is there')
  await sleep(1000)
  await send(topic, [{ value: 'late' }])
  assert.deepEqual(await late.read(1), ['late'])
  await late.consumer.disconnect()
}

// ---- administration

async function topics() {
  const topic = await create(3)
  await withAdmin(async admin => {
    assert.ok((await admin.listTopics()).includes(topic))
    const { topics: described } = await admin.fetchTopicMetadata({ topics: [topic] })
    assert.equal(described[0].partitions.length, 3)
    await admin.deleteTopics({ topics: [topic] })
    await until(async () => !(await admin.listTopics()).includes(topic), 'the topic is gone')
  })
}

async function partitions() {
  const topic = await create()
  await withAdmin(async admin => {
    await admin.createPartitions({ topicPartitions: [{ topic, count: 4 }] })
    const { topics: described } = await admin.fetchTopicMetadata({ topics: [topic] })
    assert.equal(described[0].partitions.length, 4)
    assert.deepEqual((await admin.listPartitionReassignments({})).topics, [])
  })
}

async function configs() {
  const topic = await create()
  const type = ConfigResourceTypes.TOPIC
  await withAdmin(async admin => {
    const configEntries = [{ name: 'retention.ms', value: '60000' }]
    await admin.alterConfigs({ validateOnly: false, resources: [{ type, name: topic, configEntries }] })
    const broker = { type: ConfigResourceTypes.BROKER, name: `${(await admin.describeCluster()).controller}` }
    const resources = [{ type, name: topic }, broker]
    const described = await admin.describeConfigs({ includeSynonyms: true, resources })
    const entriesOf = wanted => {
      const { configEntries } = described.resources.find(({ resourceType }) => resourceType === wanted)
      return Object.fromEntries(configEntries.map(each => [each.configName, each]))
    }
    const entries = entriesOf(type)
    assert.equal(entriesOf(broker.type)['message.max.bytes'].configValue, '1048588')
    assert.equal(entries['retention.ms'].configValue, '60000')
    assert.equal(entries['cleanup.policy'].configValue, 'delete')
    assert.equal(entries['cleanup.policy'].isDefault, true)
  })
}

async function deleteRecords() {
  const topic = await create()
  await send(topic, counted(10))
  await withAdmin(async admin => {
    // It must know the topic already, or it fails by itself.
    await admin.fetchTopicOffsets(topic)
    await admin.deleteTopicRecords({ topic, partitions: [{ partition: 0, offset: '6' }] })
    assert.equal((await admin.fetchTopicOffsets(topic))[0].low, '6')
  })
}

async function groups() {
  const topic = await create()
  const groupId = fresh('group')
  await withAdmin(async admin => {
    await withMember(topic, async member => {
      await until(() => member.assigned.length === 1, 'the member is there')
      assert.ok((await admin.listGroups()).groups.some(each => each.groupId === groupId))
      const { groups: described } = await admin.describeGroups([groupId])
      assert.equal(described[0].state, 'Stable')
      const { assignment } = AssignerProtocol.MemberAssignment.decode(described[0].members[0].memberAssignment)
      assert.deepEqual(assignment[topic], [0])
    }, groupId)
    await admin.deleteGroups([groupId])
    assert.ok(!(await admin.listGroups()).groups.some(each => each.groupId === groupId))
  })
}

async function cluster() {
  await withAdmin(async admin => {
    const described = await admin.describeCluster()
    assert.equal(described.brokers.length, 1)
    assert.ok(described.clusterId)
  })
}

// ---- errors

async function tooLarge() {
  const topic = await create()
  await assert.rejects(send(topic, [{ value: 'x'.repeat(2000000) }]), { type: 'MESSAGE_TOO_LARGE' })
  assert.equal((await send(topic, [{ value: 'small' }]))[0].baseOffset, '0')
}

async function unknown() {
  await withAdmin(async admin => {
    await assert.rejects(admin.deleteTopics({ topics: [fresh('nowhere')] }), /does not host this topic-partition/)
  })
}

async function transactions() {
  const topic = await create()
  const producer = kafka.producer({ transactionalId: fresh('tx'), idempotent: true, maxInFlightRequests: 1 })
  try {
    try {
      await producer.connect()
      const transaction = await producer.transaction()
      await transaction.send({ topic, messages: [{ value: 'value' }] })
      await transaction.commit()
    } catch (error) {
      // Its words for whatever a broker answers that is asked for a coordinator and has none.
      if (error.name !== 'KafkaJSGroupCoordinatorNotFound') throw error
      throw new Refused(`${error.name}: ${error.message}`)
    }
  } finally {
    await producer.disconnect()
  }
}

// ---- logins, of which the environment tells

const { LOGIN_CA, LOGIN_USER: username, LOGIN_PASSWORD } = process.env

function connectBy(protocol, mechanism, wrong) {
  const password = LOGIN_PASSWORD + wrong
  return connect({
    brokers: [process.env[`LOGIN_${protocol}`]],
    ssl: protocol.endsWith('SSL') && { ca: [readFileSync(LOGIN_CA, 'utf-8')] },
    sasl: mechanism && { mechanism, username, password },
  })
}

const login = (mechanism, ...protocols) => async () => {
  const plaintext = kafka
  try {
    for (const protocol of protocols) {
      kafka = connectBy(protocol, mechanism, '')
      await acks()
      kafka = connectBy(protocol, mechanism, '?')
      if (mechanism) await assert.rejects(create(), { name: 'KafkaJSSASLAuthenticationError' })
    }
  } finally {
    kafka = plaintext
  }
}

const SASL = ['SASL_PLAINTEXT', 'SASL_SSL']

const checks = {
  tls: login(undefined, 'SSL'),
  plain: login('plain', ...SASL),
  'scram-256': login('scram-sha-256', ...SASL),
  'scram-512': login('scram-sha-512', ...SASL),
  acks, gzip, records, idempotent, subscribe, seek, times, pause, roundrobin: group, commit, reset, topics,
  partitions, configs, 'delete-records': deleteRecords, groups, cluster, 'too-large': tooLarge, unknown, transactions,
}

async function main() {
  for (const feature of features) {
    let outcome = 'passed'
    let note = ''
    try {
      await checks[feature]()
    } catch (error) {
      outcome = error instanceof Refused ? 'refused' : 'failed'
      note = `${error.message}`.split('\n')[0]
    }
    console.log(JSON.stringify({ feature, outcome, note }))
  }
  process.exit(0)
}

main()
