
# zklock in a directory of its own that no server may write, as extension images are mounted: what is
# in it, and that PostgreSQL 18 and later load it from there alone.  "make extension-image" runs this
# with a PostgreSQL 18.

use strict;
use warnings;

use Cwd qw(abs_path);
use File::Basename qw(dirname);
use IPC::Run;

use ZklockTest;

my $top = abs_path(dirname(__FILE__) . '/../..');
my $image = PostgreSQL::Test::Utils::tempdir . '/extensions/zklock';

my $messages;
ok(IPC::Run::run([ "$top/package/extension", $image ], '<', \'', '2>', \$messages), 'package/extension') or diag $messages;
is(join(' ', map { chomp; $_ } sort qx{cd '$image' && find . -type f}),
	'./lib/zklock.so ./share/extension/zklock--1.0--1.1.sql ./share/extension/zklock--1.0.sql ./share/extension/zklock--1.1--1.2.sql ./share/extension/zklock--1.2--1.1.sql ./share/extension/zklock.control ./system/libzookeeper_st.so.2',
	'what is in it');
like(slurp_file("$image/share/extension/zklock.control"), qr/^module_pathname = 'zklock'$/m, 'the library is not looked for in $libdir');
system_or_bail('chmod', '-R', 'a-w', $image);

my ($major) = qx{'@{[ $ENV{PG_CONFIG} // 'pg_config' ]}' --version} =~ /(\d+)/;
SKIP:
{
	skip 'extension_control_path needs PostgreSQL 18', 1 if $major < 18;

	# As an operator sets them.
	delete local $ENV{TEMP_CONFIG};
	local $ENV{LD_LIBRARY_PATH} = join ':', "$image/system", grep { defined } $ENV{LD_LIBRARY_PATH};
	my $node = ZklockNode->started('image', ZooKeeper->new,
		extension_control_path => "\$system:$image/share",
		dynamic_library_path => "\$libdir:$image/lib");

	is($node->safe_psql('postgres', q{SELECT zk_lock_acquire('/image')}), 't', 'a lock');
	my %mapped = map { $_ => 1 } slurp_file('/proc/' . $node->worker_pid . '/maps') =~ m{(/\S+/(?:zklock|libzookeeper_st)\.so\S*)$}mg;
	is(join(' ', sort keys %mapped), "$image/lib/zklock.so $image/system/libzookeeper_st.so.2", 'the libraries come from there');

	# A new image, and then the SQL objects.
	$node->safe_psql('postgres', q{DROP EXTENSION zklock; CREATE EXTENSION zklock VERSION '1.0'});
	is($node->safe_psql('postgres', q{SELECT zk_lock_acquire('/image')}), 't', 'a lock, at 1.0');
	$node->safe_psql('postgres', 'ALTER EXTENSION zklock UPDATE');
	is($node->safe_psql('postgres', q{SELECT count(*) FROM zk_servers}), 1, 'after an update');

	# What pg_upgrade looks for.
	my $libraries = $node->safe_psql('postgres', q{
		SELECT DISTINCT probin FROM pg_proc JOIN pg_depend AS d ON d.classid = 'pg_proc'::regclass AND d.objid = pg_proc.oid
		WHERE d.deptype = 'e' AND d.refobjid = (SELECT oid FROM pg_extension WHERE extname = 'zklock') AND probin IS NOT NULL});
	is($libraries, 'zklock', 'one library, by its bare name');
	is($node->psql('postgres', "LOAD '$libraries'"), 0, 'which LOAD finds');
	$node->stop;
}

system_or_bail('chmod', '-R', 'u+w', $image);
done_testing();
