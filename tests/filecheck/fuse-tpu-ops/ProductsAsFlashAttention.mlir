// RUN: tpusim opt -p 'processor-assign{chip=bm1688 mode=F16},choose-formats,propagate-ranges,convert-ops,fuse-tpu-ops' %s | filecheck %s
//
// The products, the scaling and the softmax of an attention in 16 bits become an FAttention.

func.func @main(%in1: tensor<1x5x2x8xf32>, %in2: tensor<1x5x2x8xf32>, %in3: tensor<1x5x2x8xf32>) -> tensor<1x5x16xf32> {
  %x = "top.Input"(%in1) : (tensor<1x5x2x8xf32>) -> tensor<1x5x2x8xf32> loc("x")
  %k = "top.Input"(%in2) : (tensor<1x5x2x8xf32>) -> tensor<1x5x2x8xf32> loc("k")
  %v = "top.Input"(%in3) : (tensor<1x5x2x8xf32>) -> tensor<1x5x2x8xf32> loc("v")
  %qt = "top.Permute"(%x) {order = [0, 2, 1, 3]} : (tensor<1x5x2x8xf32>) -> tensor<1x2x5x8xf32> loc("qt")
  %kt = "top.Permute"(%k) {order = [0, 2, 3, 1]} : (tensor<1x5x2x8xf32>) -> tensor<1x2x8x5xf32> loc("kt")
  %vt = "top.Permute"(%v) {order = [0, 2, 1, 3]} : (tensor<1x5x2x8xf32>) -> tensor<1x2x5x8xf32> loc("vt")
  %none = "top.None"() : () -> none
  %scores = "top.MatMul"(%qt, %kt, %none) : (tensor<1x2x5x8xf32>, tensor<1x2x8x5xf32>, none) -> tensor<1x2x5x5xf32> loc("scores")
  %scaled = "top.MulConst"(%scores) {const_val = 5.000000e-01 : f64} : (tensor<1x2x5x5xf32>) -> tensor<1x2x5x5xf32> loc("scaled")
  %p = "top.Softmax"(%scaled) {axis = 3} : (tensor<1x2x5x5xf32>) -> tensor<1x2x5x5xf32> loc("p")
  %o = "top.MatMul"(%p, %vt, %none) : (tensor<1x2x5x5xf32>, tensor<1x2x5x8xf32>, none) -> tensor<1x2x5x8xf32> loc("o")
  %ot = "top.Permute"(%o) {order = [0, 2, 1, 3]} : (tensor<1x2x5x8xf32>) -> tensor<1x5x2x8xf32> loc("ot")
  %y = "top.Reshape"(%ot) {shape = [1, 5, 16]} : (tensor<1x5x2x8xf32>) -> tensor<1x5x16xf32> loc("y")
  func.return %y : tensor<1x5x16xf32>
}

// CHECK:      %3 = "top.Input"(%0) : (tensor<1x5x2x8xf32>) -> tensor<1x5x2x8xf32> loc("x")
// CHECK-NEXT: %4 = "top.Input"(%1) : (tensor<1x5x2x8xf32>) -> tensor<1x5x2x8xf32> loc("k")
// CHECK-NEXT: %5 = "top.Input"(%2) : (tensor<1x5x2x8xf32>) -> tensor<1x5x2x8xf32> loc("v")
// CHECK-NEXT: %6 = "tpu.Cast"(%3) {{.*}} -> tensor<1x5x2x8xf16> loc("xqt_f16")
// CHECK-NEXT: %7 = "tpu.Cast"(%4) {{.*}} -> tensor<1x5x2x8xf16> loc("kkt_f16")
// CHECK-NEXT: %8 = "tpu.Cast"(%5) {{.*}} -> tensor<1x5x2x8xf16> loc("vvt_f16")
// CHECK-NEXT: %9 = "top.None"() {{.*}} -> none
// CHECK-NEXT: %10 = "top.None"() {{.*}} -> none
// CHECK-NEXT: %11 = "tpu.FAttention"(%6, %7, %8, %10, %10) {scale = 5.000000e-01 : f64, batch = 1 : i64, q_head = 2 : i64, kv_head = 2 : i64, dim = 8 : i64, mq = 5 : i64, mk = 5 : i64, keep_dims = false, tpusim.arithmetic = "interpreter"}{{.*}} -> tensor<1x5x16xf16> loc("y")
// CHECK-NEXT: %12 = "tpu.Cast"(%11) {{.*}} -> tensor<1x5x16xf32> loc("y_f32")
// CHECK-NEXT: func.return %12 : tensor<1x5x16xf32>
