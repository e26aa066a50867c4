
# Two servers at work on a few locks while everything around them breaks, again and again.
# Afterwards the records have to show that no two backends ever held a lock at the same time, that
# tokens grew, and that nothing is left behind.

use strict;
use warnings;

use ZklockTest;

my $zk = ZooKeeper->new(servers => 3, java_opts => '');		# which removes empty directories
my %settings = (
	'zklock.session_timeout' => '4s',
	'zklock.connection_timeout' => '30s',
	'zklock.tenure' => '5ms',
	'zklock.linger' => '20ms',
	'restart_after_crash' => 'on');
my @nodes = map { ZklockNode->started($_, $zk, %settings) } 'a', 'b';
my $workers = 3;
my $paths = 2;

# Work until told to stop.  A record is written under the lock for certain.
foreach my $node (@nodes)
{
	$node->safe_psql('postgres', q{
		CREATE TABLE done (path text, token bigint, began timestamptz, ended timestamptz);
		CREATE TABLE trouble (sqlstate text, message text);
		CREATE TABLE stop ();
		CREATE PROCEDURE work(paths int, seed int) LANGUAGE plpgsql AS $$
		DECLARE
			path text;
			timeout interval;
			token bigint;
			began timestamptz;
			ended timestamptz;
			i int := seed;
		BEGIN
			LOOP
				EXIT WHEN NOT EXISTS (SELECT FROM pg_class WHERE relname = 'stop');
				i := i + 1;
				path := '/storm/' || i % paths;
				timeout := CASE i % 5 WHEN 0 THEN '0' WHEN 1 THEN '3ms' WHEN 2 THEN '100ms' ELSE '20s' END;
				BEGIN
					IF zk_lock_acquire(path, timeout) THEN
						began := clock_timestamp();
						token := zk_lock_token(path);
						PERFORM pg_sleep(0.0005 * (i % 4));
						ended := clock_timestamp();
						IF zk_lock_is_held(path) THEN
							INSERT INTO done VALUES (path, token, began, ended);
						END IF;
						PERFORM zk_lock_release(path);
					END IF;
				EXCEPTION WHEN query_canceled OR OTHERS THEN
					INSERT INTO trouble VALUES (sqlstate, sqlerrm);
					PERFORM zk_lock_release_all();
				END;
				BEGIN
					COMMIT;
				END;
			END LOOP;
		END $$});
}

# A commit that is refused ends the procedure; then it is called again.
my @backends;
foreach my $node (@nodes)
{
	push @backends, map { { node => $node, seed => $_, backend => $node->backend } } 1 .. $workers;
}

my %ended;
sub begin
{
	my ($b) = @_;
	$b->{pid} = $b->{backend}->query('SELECT pg_backend_pid()');
	$b->{backend}->send("CALL work($paths, $b->{seed})");
	return;
}

# Start all workers again that have ended.
sub tend
{
	foreach my $b (grep { $_->{backend}->is_done } @backends)
	{
		my $result = $b->{backend}->result;
		if ($b->{node}->{has_crashed})
		{
			$b->{backend} = $b->{node}->backend;
		}
		else
		{
			push @{ $ended{ $result->{errcode} } }, $result->{err};
			$b->{backend}->run('SELECT zk_lock_release_all()');
		}
		begin($b);
	}
	return;
}

# kill -9 of a backend brings all backends down.
sub crash
{
	my ($node) = @_;
	my @mine = grep { $_->{node} == $node } @backends;
	kill 'KILL', $mine[0]{pid};
	$zk->wait_until(sub { !grep { !$_->{backend}->is_done } @mine }, 'the server to crash');
	$node->wait_until_connected;
	$node->{has_crashed} = 1;
	tend();
	delete $node->{has_crashed};
	return;
}

sub ndone { my ($node) = @_; return $node->safe_psql('postgres', 'SELECT count(*) FROM done'); }

sub wait_for_progress
{
	my ($what) = @_;
	my @before = map { ndone($_) } @nodes;
	$zk->wait_until(
		sub {
			tend();
			return !grep { ndone($nodes[$_]) < $before[$_] + 20 } 0 .. $#nodes;
		},
		"both servers to get on after: $what", 120);
	pass("goes on after: $what");
	return;
}

begin($_) foreach @backends;
wait_for_progress('begin');

my $hosts = $zk->hosts;
my $reversed = join ',', reverse split /,/, $hosts;
my @storm = (
	[ 'a follower is killed' => sub { my $i; $zk->wait_until(sub { ($i) = $zk->followers; $i }, 'a follower'); $zk->kill9($i); wait_for_progress('without a follower'); $zk->start($i); } ],
	[ 'the worker of a is terminated' => sub { $nodes[0]->safe_psql('postgres', 'SELECT pg_terminate_backend(worker_pid) FROM zk_status'); } ],
	[ 'the leader is killed' => sub { my $i; $zk->wait_until(sub { $i = $zk->leader }, 'a leader'); $zk->kill9($i); wait_for_progress('without the leader'); $zk->start($i); } ],
	[ 'the session of b ends' => sub { $nodes[1]->expire_session($zk); } ],
	[ 'all of ZooKeeper is killed' => sub { $zk->kill9; $zk->start; } ],
	[ 'the list of servers changes' => sub { $nodes[1]->set('zklock.hosts', $reversed); } ],
	[ 'the session of a ends' => sub { $nodes[0]->expire_session($zk); } ],
	[ 'ZooKeeper pauses' => sub { $zk->pause; $nodes[0]->safe_psql('postgres', 'SELECT pg_sleep(0.5)'); $zk->resume; } ],
	[ 'waits are cancelled' => sub {
			foreach my $node (@nodes)
			{
				$node->safe_psql('postgres',
					q{SELECT count(pg_cancel_backend(pid)) FROM zk_locks WHERE claim = 'waiting'}) foreach 1 .. 5;
			}
		} ],
	[ 'the worker of b is terminated' => sub { $nodes[1]->safe_psql('postgres', 'SELECT pg_terminate_backend(worker_pid) FROM zk_status'); } ],
	[ 'the worker of a stands still' => sub {
			my $worker = $nodes[0]->worker_pid;
			kill 'STOP', $worker;
			$nodes[0]->wait_until('SELECT NOT safe FROM zk_status');
			kill 'CONT', $worker;
		} ],
	[ 'server b crashes' => sub { crash($nodes[1]) } ],
	[ 'ZooKeeper is restarted' => sub { $zk->restart; } ]);

foreach my $blow (@storm)
{
	my ($what, $strike) = @$blow;
	$strike->();
	wait_for_progress($what);
}

# --- the calm after ---

$_->safe_psql('postgres', 'DROP TABLE stop') foreach @nodes;
foreach my $b (@backends)
{
	my $result = $b->{backend}->result;
	push @{ $ended{ $result->{errcode} } }, $result->{err};
}

# A commit may be refused, and one may be cancelled outside of the exception block.
delete @ended{ '', 'ZK001', '57014' };
is_deeply(\%ended, {}, 'nothing ended unexpectedly');
note $nodes[$_]->safe_psql('postgres',
	'SELECT count(*), sqlstate, min(message) FROM trouble GROUP BY sqlstate') foreach 0, 1;

foreach my $node (@nodes)
{
	is( $node->safe_psql('postgres',
			q{SELECT DISTINCT sqlstate FROM trouble WHERE sqlstate NOT IN ('ZK001', '08006', '57014', '55000')}),
		'', $node->name . ': only errors that are to be expected');
	$_->{backend}->run('SELECT zk_lock_release_all()') foreach grep { $_->{node} == $node } @backends;
	$node->wait_until_clean("/storm/$_") foreach 0 .. $paths - 1;
	is($node->status('ephemeral_bytes'), '0', $node->name . ': nothing is counted any more');
	is($node->status('entries'), '0', $node->name . ': no entry is left');
}
is_deeply([ grep { /lock-/ } @{ $zk->tree('/zklock') } ], [], 'no znode is left');

# Merge the records of both servers.
my @records;
foreach my $node (@nodes)
{
	my $name = $node->name;
	foreach my $line (split /\n/, $node->safe_psql('postgres',
			q{SELECT path, token, extract(epoch FROM began), extract(epoch FROM ended) FROM done}))
	{
		my ($path, $token, $began, $ended) = split /\|/, $line;
		push @records, { node => $name, path => $path, token => $token, began => $began, ended => $ended };
	}
}
note scalar(@records) . ' records';

my (%last, @overlaps, @tokens);
foreach my $record (sort { $a->{began} cmp $b->{began} } @records)
{
	my $before = $last{ $record->{path} };
	if ($before)
	{
		push @overlaps, [ $before, $record ] if $record->{began} lt $before->{ended};
		push @tokens, [ $before, $record ] if $record->{token} <= $before->{token};
	}
	$last{ $record->{path} } = $record;
}
is(scalar(@overlaps), 0, 'no two held a lock at the same time') or diag explain $overlaps[0];
is(scalar(@tokens), 0, 'tokens grew from claim to claim') or diag explain $tokens[0];

$_->{backend}->quit foreach @backends;
foreach my $node (@nodes)
{
	$node->stop;
	unlike(slurp_file($node->logfile), qr/PANIC|TRAP|terminated by signal (?!9)/, $node->name . ': a quiet log');
}

done_testing();
