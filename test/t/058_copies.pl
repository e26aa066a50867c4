
# A copy of a data directory that was not promoted: it leads only if it has all that its original
# has acknowledged.

use strict;
use warnings;

use ZklockTest qw(!token);

my $path = '/leaders/copied';
my $record = '/zklock/.zklock/leaders/leaders%2Fcopied';
my $looks_like_a_copy = qr/Server "\w+" led last, and this looks like a copy of its data directory, made after \d{4}-[^;]+; call zk_leader_forget if it is the only one\./;
my $zk = ZooKeeper->new;
my $north = ZklockNode->started('north', $zk, 'zklock.leader_of' => $path, init => [ allows_streaming => 1 ]);
$north->safe_psql('postgres', 'CREATE TABLE t (v text)');
$north->set('zklock.commit_requires', $path);

sub text { return $zk->get($record)->{data}; }
sub token { my ($token) = text() =~ / ([0-9a-f]{32}) /; return $token; }
sub wait_until_leads { my ($node) = @_; return $node->wait_until("SELECT zk_is_leader('$path')"); }
sub commits { my ($node, $v) = @_; return $node->errcode("INSERT INTO t VALUES ('$v')"); }
sub rows { my ($node) = @_; return $node->safe_psql('postgres', q{SELECT string_agg(v, ' ' ORDER BY v) FROM t}); }

# Its ZooKeeper session ends, too.
sub die_at_once
{
	my ($node) = @_;
	my $session = $node->status('session_id');
	$node->kill9_all;
	$zk->kill_session($session);
	return;
}

sub token_files { my ($node) = @_; return glob($node->data_dir . '/pg_stat_tmp/zklock.leader.*'); }

# The copy is a server of another name.  Its files have other inodes as long as the original exists.
sub copied
{
	my ($original, $name) = @_;
	my $copy = ZklockNode->new($name);
	system_or_bail('cp', '-a', $original->data_dir, $copy->data_dir);
	unlink map { $copy->data_dir . "/$_" } 'postmaster.pid', 'postmaster.opts';
	$copy->configure('port' => $copy->port, 'unix_socket_directories' => $copy->host, 'zklock.node_name' => $name);
	return $copy;
}

# While the server runs, as PostgreSQL's documentation says.
sub copied_live
{
	my ($original, $name) = @_;
	my $session = $original->backend;
	$session->query(q{SELECT pg_backup_start('copy', true)});
	my $copy = copied($original, $name);
	append_to_file($copy->data_dir . '/backup_label', $session->query('SELECT labelfile FROM pg_backup_stop()') . "\n");
	$session->quit;

	# What was written up to the end of the backup.
	system_or_bail('cp', '-a', $original->data_dir . '/pg_wal/.', $copy->data_dir . '/pg_wal/');
	return $copy;
}

# A file system may give the copy of a file the inode that its original had.
sub give_inode
{
	my ($copy) = @_;
	my ($file) = token_files($copy);
	my $inode = (stat $file)[1];
	my $text = slurp_file($file) =~ s/^\d+/$inode/r;
	open my $handle, '>', $file or die "$file: $!";
	print $handle $text;
	close $handle;
	is((stat $file)[1], $inode, 'the inode of the file is right by chance');
	return;
}

# It is started for that, and stopped again.
sub is_refused
{
	my ($copy, $what, $rows) = @_;
	my $at = -s $copy->logfile // 0;
	$copy->start;
	$copy->wait_for_log(qr/this server must not lead "$path"\n.*DETAIL:  $looks_like_a_copy\n/, $at);
	is(commits($copy, 'lost'), '25006', "$what commits nothing");
	like($copy->status('refused_leaderships'), qr/^$path: $looks_like_a_copy$/, "$what: zk_status says why");
	is(rows($copy), $rows, "$what has these rows");
	$copy->stop;
	return;
}

# --- copies of a server that runs ---

wait_until_leads($north);
like(text(), qr/ leads north$/, 'the record says that the leadership lasts');
is(commits($north, '1'), '', 'the original commits');
my ($live, $chance) = map { copied_live($north, $_) } 'live', 'chance';
is(commits($north, '2'), '', 'the original commits what the copies do not have');
my $first = token();

# It dies, so its leadership ends.
die_at_once($north);
is_refused($live, 'a copy of a server that died', '1');
$north->start;
wait_until_leads($north);
is(commits($north, '3'), '', 'the original leads again');
isnt(token(), $first, 'the token changes when a leadership begins');
give_inode($chance);
die_at_once($north);
is_refused($chance, 'a copy from before the last leadership', '1');

# It ends its leadership in order.
$north->start;
wait_until_leads($north);
my $before_stop = copied_live($north, 'before_stop');
is(commits($north, '4'), '', 'it leads again');
$north->stop;
like(text(), qr/ ended north$/, 'the record says that the leadership has ended in order');
is_refused($before_stop, 'a copy from before a stop in order', '1 2 3');

# --- copies of a server that has stopped ---

my ($moved, $second) = map { copied($north, $_) } 'moved', 'second';
$moved->start;
wait_until_leads($moved);
is(rows($moved), '1 2 3 4', 'a copy of a server that was stopped has all');
is(commits($moved, '5'), '', 'and leads');
$moved->stop;
is_refused($second, 'another such copy', '1 2 3 4');
is_refused($north, 'the original', '1 2 3 4');

$moved->start;
wait_until_leads($moved);
die_at_once($moved);
my $of_dead = copied($moved, 'of_dead');
is_refused($of_dead, 'a copy of a server that had died', '1 2 3 4 5');

# A superuser decides which of them it shall be.
$of_dead->start;
is($of_dead->safe_psql('postgres', "SELECT zk_leader_forget('$path')"), 't', 'its history is forgotten');
wait_until_leads($of_dead);
is(commits($of_dead, '6'), '', 'so a copy leads');
$of_dead->stop;
is_refused($moved, 'then its original', '1 2 3 4 5');

# --- while the leadership lasts ---

$of_dead->start;
wait_until_leads($of_dead);
my $at = token();
my $young = copied_live($of_dead, 'young');
$zk->wait_until(sub { token() ne $at }, 'the token to change', 180);
like(text(), qr/ leads of_dead$/, 'the token changes while the leadership lasts');
is(commits($of_dead, '7'), '', 'which goes on');
give_inode($young);
die_at_once($of_dead);
is_refused($young, 'a copy from before the change', '1 2 3 4 5 6');

# The file.
$of_dead->start;
wait_until_leads($of_dead);
is(scalar(my @files = token_files($of_dead)), 1, 'there is one file');
unlink token_files($of_dead);
is($of_dead->safe_psql('postgres', "SELECT zk_leader_resign('$path')"), 't', 'a server whose file was removed resigns');
wait_until_leads($of_dead);
is(commits($of_dead, '8'), '', 'and leads again, because it has written the file again');
chmod 0500, $of_dead->data_dir . '/pg_stat_tmp';
$at = -s $of_dead->logfile;
$of_dead->safe_psql('postgres', "SELECT zk_leader_resign('$path')");
$of_dead->wait_for_log(qr/cannot stand for the leadership of "$path"\n.*could not write file/, $at);
is(commits($of_dead, 'lost'), '25006', 'without a file, it does not lead');
chmod 0700, $of_dead->data_dir . '/pg_stat_tmp';
wait_until_leads($of_dead);

# Each leadership has its own.
$of_dead->set($_, "$path,/leaders/other") foreach 'zklock.leader_of', 'zklock.commit_requires';
$of_dead->wait_until(q{SELECT zk_is_leader('/leaders/other')});
is(scalar(@files = token_files($of_dead)), 2, 'two leaderships, two files');
is(commits($of_dead, '9'), '', 'it commits with both');
$of_dead->stop;
$of_dead->start;
$of_dead->wait_until("SELECT zk_is_leader('$path') AND zk_is_leader('/leaders/other')");
is(commits($of_dead, '10'), '', 'also after a restart');
$of_dead->kill9_all;
unlink token_files($of_dead);
$at = -s $of_dead->logfile;
$of_dead->start;
$of_dead->wait_for_log(qr/Server "of_dead" led last, on a timeline 1 that is not this server's timeline 1\./, $at);
is(commits($of_dead, 'lost'), '25006', 'without its file, it leads no more after a start');
$of_dead->stop;
done_testing();
