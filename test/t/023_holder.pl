
# zk_lock_queue and the znode name the backend that holds a contended lock now, whichever backend
# the ticket was made for.  They still do so when its release is requested.

use strict;
use warnings;

use Time::HiRes qw(time);

use ZklockTest;

my $zk = ZooKeeper->new;
my %settings = ('zklock.session_timeout' => '30s', 'zklock.tenure' => '1h', 'zklock.linger' => '1h',
	'deadlock_timeout' => '300ms');
my $north = ZklockNode->started('north', $zk, %settings);
my $south = ZklockNode->started('south', $zk, %settings);
my ($n1, $n2, $n3) = map { $north->backend } 1 .. 3;
my ($s1, $s2) = map { $south->backend } 1 .. 2;

sub holder
{
	my ($judge, $path) = @_;
	return $judge->query("SELECT concat_ws(' ', server, pid) FROM zk_lock_queue('$path') WHERE holds ORDER BY position LIMIT 1");
}

sub wait_for_holder
{
	my ($judge, $path, $backend) = @_;
	$judge->wait_until('SELECT pid = ' . $backend->pid . " FROM zk_lock_queue('$path') WHERE holds ORDER BY position LIMIT 1");
	return;
}

# The data of the first znode of the queue, and how often it was written.
sub znode
{
	my ($path) = @_;
	my $znode = $s2->query("SELECT znode FROM zk_lock_queue('$path') WHERE holds ORDER BY position LIMIT 1");
	return $zk->get("/zklock$path/$znode");
}

# --- handed on while others wait ---

$n1->query(acquire('/m'));
$n2->send(acquire('/m'));
$north->wait_for_waiter('/m', 1);
$s1->send(acquire('/m'));
$south->wait_for_ticket('/m', 'queued');
$north->wait_until_contended('/m');
is(holder($s2, '/m'), 'north ' . $n1->pid, 'the backend for which the ticket was made holds it');
my $writes = znode('/m')->{version};
$n1->query(release('/m'));
is($n2->answer, 't', 'handed on within the server');
is(holder($n3, '/m'), 'north ' . $n2->pid, 'its own server knows that at once');
wait_for_holder($s2, '/m', $n2);
is(holder($s2, '/m'), 'north ' . $n2->pid, 'other servers are told');
like(znode('/m')->{data}, qr/^server=north pid=${\ $n2->pid } /, 'by the znode');
cmp_ok(znode('/m')->{version} - $writes, '<=', 2, 'which is written once for that, and once to say that it is in use');
is($s2->query(try('/m')), 'f', 'which a try still sees');
like(znode('/m')->{data}, qr/ in_use=t( |$)/, 'in the znode');

# --- its release is requested ---

is($s2->query(q{SELECT zk_lock_revoke('/m')}), '1', 'its release is requested');
is(holder($s2, '/m'), 'north ' . $n2->pid, 'the holder is still named');
$north->wait_until(q{SELECT bool_or(revoked) FROM zk_locks WHERE path = '/m'});
is($n2->query(q{SELECT zk_lock_is_revoked('/m')}), 't', 'and told');
like(znode('/m')->{data}, qr/^server=north pid=${\ $n2->pid } .* in_use=t revoke=t$/, 'both stand in the znode');
my $version = znode('/m')->{version};
is($s2->query(q{SELECT zk_lock_revoke('/m')}), '1', 'requested again');
is(znode('/m')->{version}, $version, 'which needs no write');
$zk->set('/zklock/m/' . $s2->query(q{SELECT znode FROM zk_lock_queue('/m') WHERE holds}), '__REVOKE__');
wait_for_holder($s2, '/m', $n2);
like(znode('/m')->{data}, qr/^server=north pid=${\ $n2->pid } .* in_use=t$/, "the data that Curator has overwritten is written again");
$n2->query(release('/m'));
is($s1->answer, 't', 'the waiter has it');
$s1->query(q{SELECT zk_lock_release_all()});

# A request by Curator, which overwrites the znode's data, is heard before the worker writes again.
$n1->query(acquire('/word'));
$s1->send(acquire('/word'));
$south->wait_for_ticket('/word', 'queued');
$north->wait_until_contended('/word');
$zk->set('/zklock/word/' . $s2->query(q{SELECT znode FROM zk_lock_queue('/word') WHERE holds}), '__REVOKE__');
$north->wait_until(q{SELECT bool_or(revoked) FROM zk_locks WHERE path = '/word'});
is($n1->query(q{SELECT zk_lock_is_revoked('/word')}), 't', "Curator's word is heard");
wait_for_holder($s2, '/word', $n1);
pass('and the holder is named again');
$n1->query(release('/word'));
is($s1->answer, 't', 'the waiter has it');
$s1->query(release('/word'));

# --- handed on before other clients come ---

$n1->query(q{SELECT zk_lock_acquire('/early'), zk_lock_release('/early')}) foreach 1 .. 2;
$north->wait_for_ticket('/early', 'lingering');
is(holder($n3, '/early'), 'north', 'no backend holds a ticket that lingers, and its server says so');
$n2->query(acquire('/early'));
$s1->send(acquire('/early'));
wait_for_holder($s2, '/early', $n2);
pass('a ticket that had been handed on names its holder when others come');

# The name outlives the worker, and a worker that is started later writes it.
$north->safe_psql('postgres', 'SELECT pg_terminate_backend(worker_pid) FROM zk_status');
$n3->send(acquire('/early'));
$north->wait_for_waiter('/early', 1);
$n2->query(release('/early'));
is($n3->answer, 't', 'handed on without a worker');
wait_for_holder($s2, '/early', $n3);
pass('the next worker writes it');
$n3->query(release('/early'));
$s1->answer;

# --- several readers on one ticket ---

$n1->query(q{SELECT zk_read_lock_acquire('/rw')});
$n2->query(q{SELECT zk_read_lock_acquire('/rw')});
$n3->query(q{SELECT zk_read_lock_acquire('/rw')});
my $s3 = $south->backend;
$s3->send(q{SELECT zk_write_lock_acquire('/rw')});
$south->wait_for_ticket('/rw', 'queued');
$north->wait_until_contended('/rw');
is(holder($s2, '/rw'), 'north ' . $n1->pid, 'of several readers, the one for which the ticket was made');
$n1->query(q{SELECT zk_read_lock_release('/rw')});
wait_for_holder($s2, '/rw', $n2);
pass('then the one that came first');
$n3->query(q{SELECT zk_read_lock_release('/rw')});
$version = znode('/rw')->{version};
$n2->query(q{SELECT pg_sleep(0.7)});
is(znode('/rw')->{version}, $version, 'a reader that goes without being named changes nothing');
$n2->query(q{SELECT zk_read_lock_release('/rw')});
is($s3->answer, 't', 'the writer has it');
$s3->query(q{SELECT zk_lock_release_all()});

# --- leases ---

$n1->query(q{SELECT zk_semaphore_acquire('/sem', 2)});
$n2->query(q{SELECT zk_semaphore_acquire('/sem', 2)});
$n3->send(q{SELECT zk_semaphore_acquire('/sem', 2)});
$north->wait_for_waiter('/sem', 1);
$n1->query(q{SELECT zk_semaphore_release('/sem')});
is($n3->answer, 't', 'a lease is handed on');
is($n3->query(q{SELECT string_agg(pid::text, ' ' ORDER BY pid) FROM zk_lock_queue('/sem') WHERE holds AND mode = 'lease'}),
	join(' ', sort { $a <=> $b } $n2->pid, $n3->pid), 'its own server names the holders');
$s3->send(q{SELECT zk_semaphore_acquire('/sem', 2)});
$s2->wait_until(q{SELECT string_agg(pid::text, ' ' ORDER BY pid) = '}
	  . join(' ', sort { $a <=> $b } $n2->pid, $n3->pid)
	  . q{' FROM zk_lock_queue('/sem') WHERE holds AND mode = 'lease'});
pass('and others are told when they wait');
$_->query(q{SELECT zk_lock_release_all()}) foreach $n2, $n3;
is($s3->answer, 't', 'the waiter has a lease');
$s3->query(q{SELECT zk_lock_release_all()});

# --- fast hands ---

$n1->query(acquire('/fast'));
my $s4 = $south->backend;
$s4->send(acquire('/fast'));
$south->wait_for_ticket('/fast', 'queued');
$north->wait_until_contended('/fast');
$n2->send(acquire('/fast'));
$north->wait_for_waiter('/fast', 1);
$zk->wait_until(sub { znode('/fast')->{data} =~ / in_use=t/ }, 'the znode to say that it is in use');
$north->set('deadlock_timeout', '1min');
$version = znode('/fast')->{version};
my $requests = $north->status('requests');
my ($holder, $waiter) = ($n1, $n2);

sub hand_on
{
	$holder->query(release('/fast'));
	$waiter->answer;
	$holder->send(acquire('/fast'));
	($holder, $waiter) = ($waiter, $holder);
	$north->wait_for_waiter('/fast', 1);
	return;
}
hand_on() foreach 1 .. 20;
is(znode('/fast')->{version}, $version, 'handed on 20 times before deadlock_timeout: nothing is written');
cmp_ok($north->status('requests') - $requests, '<=', 2, 'nor asked');

# Each backend has the lock for longer than deadlock_timeout.
$north->set('deadlock_timeout', '300ms');
my $begun = time;
foreach my $turn (1 .. 5)
{
	hand_on();
	wait_for_holder($s2, '/fast', $holder);
}
my $seconds = time - $begun;
$version = znode('/fast')->{version} - $version;
cmp_ok($version, '>=', 5, 'handed on slowly: each is written');
cmp_ok($version, '<=', 1 + $seconds / 0.3, 'at most one write a deadlock_timeout');
$holder->query(release('/fast'));
$waiter->answer;
$waiter->query(release('/fast'));
is($s4->answer, 't', 'the other server has it in the end');

# --- a cancel while the names are read ---

# The lock keeps any backend that reads the catalog of databases waiting, until it is cancelled.
my ($described, $changer) = map { $north->backend } 1, 2;

sub cancel_in_catalog
{
	$changer->query(q{ALTER DATABASE postgres CONNECTION LIMIT 77});
	$changer->query(q{BEGIN});
	$changer->query(q{LOCK TABLE pg_database});
	$described->query(q{SET statement_timeout = '300ms'});
	is($described->run(acquire('/cancelled'))->{errcode}, '57014', 'cancelled while the names are read');
	$changer->query(q{COMMIT});
	$described->query(q{RESET statement_timeout});
	$described->query(acquire('/described'));
	my $names = $described->query(q{SELECT concat_ws(' ', role, application) FROM zk_lock_queue('/described')});
	$described->query(q{SELECT zk_lock_release_all()});
	return $names;
}

$changer->query(q{CREATE ROLE old_name SUPERUSER});
$described->query(q{SET ROLE old_name});
$described->query(q{SET application_name = 'old'});
$described->query(q{SELECT zk_lock_acquire('/described'), zk_lock_release_all()});
$described->query(q{SET application_name = 'new'});
is(cancel_in_catalog(), 'old_name new', 'the next claim names the present application');
$changer->query(q{ALTER ROLE old_name RENAME TO new_name});
is(cancel_in_catalog(), 'new_name new', 'and the present name of the role');

done_testing();
