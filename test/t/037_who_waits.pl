
# Which backend keeps another one waiting: what zk_blockers shows, what the log says of a wait for
# ZooKeeper, and what the messages say that end a wait.

use strict;
use warnings;

use ZklockTest;

my $zk = ZooKeeper->new;
my %settings = ('zklock.session_timeout' => '30s', 'zklock.connection_timeout' => '30s', 'zklock.tenure' => '1h',
	'zklock.linger' => 0, 'deadlock_timeout' => '200ms');
my $north = ZklockNode->started('north', $zk, %settings);
my $south = ZklockNode->started('south', $zk, %settings, 'log_lock_waits' => 'on');
my ($n1, $n2, $n3) = map { $north->backend } 1 .. 3;
my ($s1, $s2, $judge) = map { $south->backend } 1 .. 3;
my $uuid = '1b4e28ba-2fa1-41d2-883f-0016d3cca427';
my $role = $judge->query('SELECT current_user');

# One line for each client in the way of a backend; only $judge may look.
sub blockers
{
	my ($backend, $columns) = @_;
	return $judge->query("SELECT concat_ws(' ', " . ($columns // 'path, mode, holds, client, server, pid')
		  . ') FROM zk_blockers(' . $backend->pid . ')');
}

# The data of the first znode of a queue has to say this.
sub wait_for_text
{
	my ($path, $what) = @_;
	return $zk->wait_until(sub {
		my $children = $zk->children("/zklock$path");
		my ($first) = sort { substr($a, -10) cmp substr($b, -10) } @$children;
		return $zk->get("/zklock$path/$first")->{data} =~ $what;
	}, "the first znode of $path to say $what");
}

sub log_end { return -s $south->logfile; }
sub logged { my ($at) = @_; return substr(slurp_file($south->logfile), $at); }
sub release_all { $_->query('SELECT zk_lock_release_all()') foreach @_; return; }

# --- a mutex ---

is($judge->query('SELECT count(*) FROM unnest(ARRAY[0, NULL, pg_backend_pid()]) AS p, zk_blockers(p)'), '0',
	'no client is in the way of a backend that does not wait');
$n1->query(q{SET application_name = 'a b'});
$n1->query(acquire('/m'));
my $foreign = $zk->create("/zklock/m/_c_$uuid-lock-", ephemeral => 1, sequence => 1, data => '192.0.2.1');
my $at = log_end();
$s1->send(acquire('/m'));
$south->wait_for_ticket('/m', 'queued');
$s2->send(acquire('/m'));
$south->wait_for_waiter('/m', 2);
my $before = join "\n", '/m lock t zklock north ' . $n1->pid, '/m lock f curator';
is(blockers($s1), $before, 'two clients are before the ticket: one holds the lock, one waits');
is(blockers($s1, "database, role, '[' || application || ']'"), "postgres $role [a b]\n", 'all about the backend on the other server');
is(blockers($s2), "$before\n/m lock f zklock south " . $s1->pid, 'a backend of the same server is in the way, too');
is($judge->query('SELECT pg_blocking_pids(' . $s2->pid . ')'), '{' . $s1->pid . '}', 'which PostgreSQL knows as well');
is($judge->query('SELECT pg_blocking_pids(' . $s1->pid . ')'), '{}', 'but not the others');
is($judge->query('SELECT count(*) FROM zk_blockers(' . $n1->pid . ')'), '0', 'a backend of another server has no rows');
is(blockers($s2, q{since BETWEEN now() - interval '1 h' AND now() + interval '1 h'}), "t\nt\nt", 'since when');
$judge->query('CREATE ROLE plain; SET ROLE plain');
is(blockers($s2, 'server, since IS NULL'), "north t\nt\nsouth t", 'hidden from a role that may not see it');
$judge->query("RESET ROLE; GRANT $role TO plain; SET ROLE plain");
is(blockers($s2, 'server, since IS NULL'), "north t\nt\nsouth f", 'a member of the role sees what its backends do');
$judge->query("RESET ROLE; REVOKE $role FROM plain; GRANT pg_read_all_stats TO plain; SET ROLE plain");
is(blockers($s2, 'server, since IS NULL'), "north f\nf\nsouth f", 'a role that may read all statistics sees all');
$judge->query('RESET ROLE; DROP ROLE plain');

# --- log_lock_waits ---

sub still
{
	my ($backend, $what) = @_;
	return qr/LOG:  process ${\ $backend->pid } still waiting for $what in ZooKeeper after \d+\.\d{3} ms\n/;
}

sub acquired
{
	my ($backend, $what) = @_;
	return qr/LOG:  process ${\ $backend->pid } acquired $what in ZooKeeper after \d+\.\d{3} ms\n/;
}
my $m = 'ExclusiveLock on lock "/m"';
my $local = qr/LOG:  process ${\ $s2->pid } still waiting for ExclusiveLock on advisory lock \[.*?\] after/;
$south->wait_for_log(still($s1, $m), $at);
$south->wait_for_log($local, $at);
like(logged($at), qr/${\ still($s1, $m) }.*DETAIL:  Process ${\ $n1->pid } on server "north" holds the lock\.\n.*STATEMENT:  SELECT zk_lock_acquire/,
	'the log names the holder, although another client queues between');
like(logged($at), qr/$local.*\n.*DETAIL:  Process holding the lock: ${\ $s1->pid }\..*\n.*CONTEXT:  while waiting for lock "\/m"/,
	"PostgreSQL's own line has the path");
$zk->close;
$n1->query(release('/m'));
my $told = $s1->result;
is($told->{out}, 't', 'acquired');
like($told->{err}, qr/NOTICE:  00000: still waiting for ExclusiveLock on lock "\/m"\nDETAIL:  Process ${\ $n1->pid } on server "north" holds the lock\.\n/,
	'the user who waits for another server is told');
$s1->query(release('/m'));
$told = $s2->result;
is($told->{out}, 't', 'handed on');
like($told->{err}, qr/NOTICE:  00000: still waiting for lock "\/m"\n/, 'a user who waits for a backend of the same server is told');
is(scalar(() = $told->{err} =~ /NOTICE/g), 1, 'once');
like(logged($at), acquired($s1, $m), 'the log says that the wait is over');
unlike(logged($at), qr/process ${\ $s2->pid } acquired.*in ZooKeeper/, 'but not of a wait that was over at once');
is(scalar(() = logged($at) =~ /still waiting/g), 2, 'one line a wait');
release_all($s2);

# The list that the ticket has read is enough to name the holder.
$at = log_end();
$n1->query(q{SELECT zk_read_lock_acquire('/quiet')});
wait_for_text('/quiet', qr/^server=north/);
$judge->query(q{ALTER SYSTEM SET deadlock_timeout = '1h'});
$south->reload;
$south->wait_until(q{SELECT current_setting('deadlock_timeout') = '1h'});
$s1->query(q{SET deadlock_timeout = '2s'});
$s1->send(q{SELECT zk_write_lock_acquire('/quiet')});
wait_for_text('/quiet', qr/ in_use=t/);
$south->wait_for_ticket('/quiet', 'queued');
$zk->pause;
my $quiet = 'ExclusiveLock on lock "/quiet"';
$south->wait_for_log(still($s1, $quiet), $at);
$zk->resume;
like(logged($at), qr/${\ still($s1, $quiet) }.*DETAIL:  Process ${\ $n1->pid } on server "north" holds the lock\./, 'without a request');
$n1->query(q{SELECT zk_read_lock_release('/quiet')});
is($s1->answer, 't', 'acquired');
like(logged($at), acquired($s1, $quiet), 'after the wait');
release_all($s1);
$judge->query(q{ALTER SYSTEM SET deadlock_timeout = '200ms'});
$south->reload;
$south->wait_until(q{SELECT current_setting('deadlock_timeout') = '200ms'});
$s1->query('RESET deadlock_timeout');

# --- readers and writers ---

$at = log_end();
$n1->query(q{SELECT zk_read_lock_acquire('/rw')});
$s1->send(q{SELECT zk_write_lock_acquire('/rw')});
$south->wait_for_ticket('/rw', 'queued');
$n2->send(q{SELECT zk_write_lock_acquire('/rw')});
$north->wait_for_waiter('/rw', 1);
$s2->send(q{SELECT zk_read_lock_acquire('/rw')});
$south->wait_for_waiter('/rw', 2);
is(blockers($s1), '/rw read t zklock north ' . $n1->pid, 'a reader is in the way of a writer');
is(blockers($s2), '/rw read t zklock north ' . $n1->pid . "\n/rw write f zklock south " . $s1->pid,
	'a writer that waits is in the way of a reader');
is($north->safe_psql('postgres', q{SELECT concat_ws(' ', path, mode, holds, server, pid) FROM zk_blockers(} . $n2->pid . ')'),
	'/rw read t north ' . $n1->pid, 'a reader of the same server is in the way of a writer');
$n1->query(q{SELECT zk_read_lock_release('/rw')});
is($s1->answer, 't', 'the writer that came first');
$north->wait_for_ticket('/rw', 'queued');
is($north->safe_psql('postgres', q{SELECT concat_ws(' ', path, mode, holds, server, pid) FROM zk_blockers(} . $n2->pid . ')'),
	'/rw write t south ' . $s1->pid, 'now it is in the way of the other');
release_all($s1);
is($s2->answer, 't', 'the reader');
release_all($s2);
is($n2->answer, 't', 'the other writer');
release_all($n2);

# Readers on two servers are not in each other's way, but behind the same writer.
$zk->create("/zklock/readers/_c_$uuid-__WRIT__", ephemeral => 1, sequence => 1, data => 'who');
foreach ([ $n1, $north ], [ $s1, $south ])
{
	my ($backend, $node) = @$_;
	$backend->send(q{SELECT zk_read_lock_acquire('/readers')});
	$node->wait_for_ticket('/readers', 'queued');
}
is(blockers($s1), '/readers write t curator', 'a reader waits for the writer only');
$south->wait_for_log(still($s1, 'ShareLock on lock "/readers"'), $at);
like(logged($at), qr/on lock "\/readers" in ZooKeeper.*\n.*DETAIL:  Znode "_c_$uuid-__WRIT__0000000000" holds the lock\./,
	'a client that says nothing about itself is known by its znode');
$zk->close;
is($_->answer, 't', 'a reader') foreach $n1, $s1;
release_all($n1, $s1);

# --- leases ---

$at = log_end();
$n1->query(q{SELECT zk_semaphore_acquire('/sem', 2)});
$n2->query(q{SELECT zk_semaphore_acquire('/sem', 2)});
$s1->send(q{SELECT zk_semaphore_acquire('/sem', 2)});
$south->wait_for_ticket('/sem/locks', 'owned');
$s2->send(q{SELECT zk_semaphore_acquire('/sem', 2)});
$south->wait_for_waiter('/sem/locks', 1);
$n3->send(q{SELECT zk_semaphore_acquire('/sem', 2)});
$north->wait_for_ticket('/sem/locks', 'queued');
my @leases = map { '/sem lease t zklock north ' . $_->pid } $n1, $n2;
my @before = sort @leases, '/sem acquiring f zklock south ' . $s1->pid;
is(blockers($s1), join("\n", @leases), 'the holders of the leases');

# The leases and the inner mutex may come in either order.
is_deeply([ sort split /\n/, blockers($s2) ], \@before, 'and the earlier waiter for leases');
is_deeply([ sort split /\n/, $north->safe_psql('postgres', q{SELECT concat_ws(' ', path, mode, holds, client, server, pid) FROM zk_blockers(} . $n3->pid . ')') ],
	\@before, 'seen from the server that holds the leases');
$south->wait_for_log(still($s1, '1 lease on semaphore "/sem"'), $at);
$n1->query(q{SELECT zk_semaphore_release('/sem')});
is($s1->answer, 't', 'acquired');
like(logged($at), acquired($s1, '1 lease on semaphore "/sem"'), 'which the log says');
$n2->query(q{SELECT zk_semaphore_release('/sem')});
is($s2->answer, 't', 'acquired');
$north->wait_for_ticket('/sem/locks', 'owned');
is($north->safe_psql('postgres', q{SELECT concat_ws(' ', mode, holds, server, pid) FROM zk_blockers(} . $n3->pid . q{) ORDER BY pid}),
	join("\n", map { 'lease t south ' . $_->pid } sort { $a->pid <=> $b->pid } $s1, $s2), 'the leases are on the other server now');
release_all($s1);
is($n3->answer, 't', 'acquired');
release_all($s2, $n3);

# --- the messages that end a wait ---

$n1->query(acquire('/end'));
$s1->query(q{SET lock_timeout = '700ms'});
my $ended = $s1->run(acquire('/end'));
is($ended->{errcode}, '55P03', 'lock_timeout');
like($ended->{err}, qr/DETAIL:  Process ${\ $n1->pid } on server "north" holds the lock\./, 'names the holder of the lock');
$s1->query(q{RESET lock_timeout; SET statement_timeout = '700ms'});
$ended = $s1->run(acquire('/end'));
is($ended->{errcode}, '57014', 'statement_timeout');
my $context = qr/CONTEXT:  while waiting for lock "\/end", which process ${\ $n1->pid } on server "north" holds\n/;
like($ended->{err}, $context, 'says so, too');
$s1->query(q{RESET statement_timeout});
$s1->send(acquire('/end'));
$south->wait_for_ticket('/end', 'queued');
$s2->query(q{SET statement_timeout = '700ms'});
$ended = $s2->run(acquire('/end'));
is($ended->{errcode}, '57014', 'statement_timeout behind another backend of the same server');
like($ended->{err}, $context, 'names the holder on the other server');
$s2->query(q{RESET statement_timeout});

# --- what pg_stat_activity shows ---

my $named = $south->safe_psql('postgres', q{SELECT current_setting('server_version_num')::int >= 170000});
sub event { my ($backend) = @_; return $judge->query('SELECT wait_event_type, wait_event FROM pg_stat_activity WHERE pid = ' . $backend->pid); }
is(event($s1), $named eq 't' ? 'Extension|ZklockTicket' : 'Extension|Extension', 'a wait for another client');
$judge->query('SELECT pg_cancel_backend(' . $s1->pid . ')');
$ended = $s1->result;
is($ended->{errcode}, '57014', 'cancelled');
like($ended->{err}, $context, 'and told for what it waited');
release_all($n1);

# --- ZooKeeper does not reply ---

$at = log_end();
$zk->pause;
$s1->send(acquire('/silent'));
$south->wait_for_log(still($s1, 'ExclusiveLock on lock "/silent"'), $at);
like(logged($at), qr/on lock "\/silent" in ZooKeeper.*\n.*DETAIL:  ZooKeeper has not replied yet\./, 'no client is blamed for a silence of ZooKeeper');
is(event($s1), $named eq 't' ? 'Extension|ZklockReply' : 'Extension|Extension', 'a wait for ZooKeeper');
$zk->resume;
is($s1->answer, 't', 'acquired');
release_all($s1);

$s1->query(acquire('/here'));
$at = log_end();
$s2->send(acquire('/here'));
$south->wait_for_log(qr/process ${\ $s2->pid } still waiting for/, $at);
my $here = qr/NOTICE:  00000: still waiting for lock "\/here"\nDETAIL:  Process ${\ $s1->pid } on server "south" holds the lock\.\n/;
release_all($s1);
like($s2->result->{err}, $here, 'the user is told which backend of the same server holds the lock');
release_all($s2);

# --- not logged ---

$at = log_end();
$n1->query(acquire('/not'));
$s1->query(q{SET log_lock_waits = off});
is($s1->run(acquire('/not', '600ms'))->{err}, '', 'log_lock_waits is off: the user is told nothing');
$s1->query(q{RESET log_lock_waits});
is($s1->query(acquire('/not', '50ms')), 'f', 'a wait that is shorter than deadlock_timeout');
is($s1->query(try('/not')), 'f', 'a try');
unlike(logged($at), qr/still waiting|acquired/, 'nothing is logged of these');
release_all($n1);

done_testing();
